#include "launcher/program_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <elf.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include "agent/process/helper_command.h"
#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

class ProgramFiles : public testing::Test {
 protected:
  std::string at(const std::string& path) const { return (tree_.root() / path).string(); }

  std::string file(const std::string& path, const std::string& content, mode_t mode = 0644) const {
    std::filesystem::create_directories((tree_.root() / path).parent_path());
    std::ofstream(at(path), std::ios::binary) << content;
    EXPECT_EQ(chmod(at(path).c_str(), mode), 0);
    return at(path);
  }

  FileKind kind_of(const std::string& content) const {
    return inspect_program(file("kind", content)).kind;
  }

  TempTree tree_;
};

TEST_F(ProgramFiles, AreDistinguishedByTheirFirstBytes) {
  const std::string nul(1, '\0');
  EXPECT_EQ(kind_of("\x7f"
                    "ELF"),
            FileKind::elf);
  EXPECT_EQ(kind_of("\x7f"
                    "EL"),
            FileKind::text);
  EXPECT_EQ(kind_of("#!"), FileKind::hash_bang);
  EXPECT_EQ(kind_of("# !/bin/sh"), FileKind::text);
  EXPECT_EQ(kind_of(" #!/bin/sh"), FileKind::text);
  EXPECT_EQ(kind_of("#!/bin/sh\n" + nul), FileKind::hash_bang);
  EXPECT_EQ(kind_of("PK\x03\x04" + nul), FileKind::zip);
  EXPECT_EQ(kind_of("PK\x05\x06" + nul), FileKind::binary);
  EXPECT_EQ(kind_of(""), FileKind::text);
  EXPECT_EQ(kind_of("\xff\xfe"), FileKind::text);
  EXPECT_EQ(kind_of("text" + nul), FileKind::binary);
}

TEST_F(ProgramFiles, AreJudgedByTheirFirst4KiB) {
  const std::string block(4096, 'x');
  const ProgramFile late = inspect_program(file("late", block + '\0'));
  EXPECT_EQ(late.kind, FileKind::text);
  EXPECT_EQ(late.head, block);
  EXPECT_EQ(kind_of(block.substr(1) + '\0'), FileKind::binary);
}

TEST_F(ProgramFiles, AreExecutableByTheirMode) {
  const ProgramFile plain = inspect_program(file("a", "x", 0644));
  const ProgramFile program = inspect_program(file("b", "x", 0755));
  EXPECT_FALSE(plain.executable);
  EXPECT_TRUE(program.executable);
  EXPECT_EQ(program.reason, "");
}

TEST_F(ProgramFiles, AreFollowedThroughLinks) {
  file("folder/real", "#!/bin/sh\n", 0755);
  std::filesystem::create_symlink("folder/real", at("link"));
  const ProgramFile found = inspect_program(at("link"));
  EXPECT_EQ(found.kind, FileKind::hash_bang);
  EXPECT_EQ(found.head, "#!/bin/sh\n");
  EXPECT_TRUE(found.executable);
}

struct NoProgram {
  std::string path;
  FileKind kind;
  std::string reason;
};

TEST_F(ProgramFiles, SayWhyTheyCannotBePrograms) {
  file("file", "");
  std::filesystem::create_directory(at("folder"));
  std::filesystem::create_symlink("no\nwhere", at("broken"));
  std::filesystem::create_symlink("circle", at("circle"));
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  const std::vector<NoProgram> cases = {
      {at("missing"), FileKind::missing, ""},
      {"", FileKind::missing, ""},
      {at("file/below"), FileKind::missing, ""},
      {at("broken"), FileKind::missing,
       "it is a symbolic link to no\\nwhere, which does not exist; correct the link"},
      {at("circle"), FileKind::out_of_reach, "its symbolic links form a loop; correct the links"},
      {at(std::string(256, 'x')), FileKind::out_of_reach,
       "its name is too long; give a shorter path"},
      {at("folder"), FileKind::directory, ""},
      {at("pipe"), FileKind::stream, "it is a pipe; name a file"},
      {"/dev/null", FileKind::stream, "it is a character device; name a file"},
  };
  for (const NoProgram& one : cases) {
    const ProgramFile found = inspect_program(one.path);
    EXPECT_EQ(found.kind, one.kind) << one.path;
    EXPECT_EQ(found.reason, one.reason) << one.path;
    EXPECT_FALSE(found.executable) << one.path;
    EXPECT_EQ(found.head, "") << one.path;
  }
}

TEST_F(ProgramFiles, AreSearchedForAFlagInTheirFirstMebibyte) {
  constexpr size_t kMebibyte = 1 << 20;
  const std::string name = "nproc_per_node";
  const auto found = [&](size_t spaces) {
    return names_flag(file("s.py", std::string(spaces, ' ') + name), "nproc-per-node");
  };
  EXPECT_TRUE(found(0));
  EXPECT_TRUE(found(kMebibyte - name.size()));
  EXPECT_FALSE(found(kMebibyte - name.size() + 1));
  EXPECT_TRUE(names_flag(file("s.py", "('--nproc-per-node')"), "nproc-per-node"));
  for (const char* other : {"", "nproc-per_node nproc per node"})
    EXPECT_FALSE(names_flag(file("s.py", other), "nproc-per-node")) << other;
  for (const std::string& unknown : {at("."), at("missing"), std::string("/dev/null")})
    EXPECT_TRUE(names_flag(unknown, "nproc-per-node")) << unknown;
}

TEST_F(ProgramFiles, AreFoundInTheFirstFolderOfThePathThatHasOne) {
  const std::string first = file("one/tool", "", 0755), second = file("two/tool", "", 0755);
  file("plain/tool", "", 0644);
  std::filesystem::create_directories(at("nested/tool"));
  EXPECT_EQ(find_on_path("tool", at("one") + ":" + at("two")), first);
  EXPECT_EQ(find_on_path("tool", at("two") + ":" + at("one")), second);
  EXPECT_EQ(
      find_on_path("tool", at("none") + ":" + at("plain") + ":" + at("nested") + ":" + at("one")),
      first);
  EXPECT_EQ(find_on_path("tool", at("plain") + ":" + at("nested")), "");
  EXPECT_EQ(find_on_path("", at("one")), "");
  EXPECT_EQ(find_on_path("too", at("one")), "");
}

TEST_F(ProgramFiles, AreFoundInTheCurrentFolderIfPathHasAnEmptyEntry) {
  file("tool", "", 0755);
  const std::string name = std::filesystem::relative(at("tool")).string();
  for (const char* path_list : {"", ":", "/no/where:", ":/no/where", "/no/where::/no/where"})
    EXPECT_EQ(find_on_path(name, path_list), "./" + name) << path_list;
  EXPECT_EQ(find_on_path(name, "/no/where"), "");
}

std::string told_of(const Result<void>& result) {
  return result
             ? "fine"
             : fmt::format("{}: {}", static_cast<int>(result.error().code), result.error().message);
}

struct HashBangCase {
  HashBang line;
  std::string told;
};

TEST_F(ProgramFiles, NeedTheInterpreterOfTheirHashBang) {
  const std::string shell = file("bin/sh", "", 0755), env = file("bin/env", "", 0755);
  const std::string text = file("text", "");
  const std::string missing = "127: cannot run 'a b': its #! line ";
  const std::string carriage =
      "126: cannot run 'a b': its #! line ends in a carriage return; convert the file to Unix line "
      "ends, as by dos2unix";
  const std::vector<HashBangCase> cases = {
      {{shell, "-e"}, "fine"},
      {{shell, "no-such-tool"}, "fine"},
      {{env, "sh"}, "fine"},
      {{env, "-S no-such-tool"}, "fine"},
      {{env, "A=1"}, "fine"},
      {{env, "/no/such/tool"}, "fine"},
      {{env, ""}, "fine"},
      {{env, "no-such-tool"},
       missing + "asks env for no-such-tool, which is not on PATH; correct the line or install it"},
      {{"/no/sh", ""},
       missing + "names the interpreter /no/sh, which does not exist; correct the line or install "
                 "it"},
      {{"", ""},
       missing + "names the interpreter '', which does not exist; correct the line or install it"},
      {{text, ""},
       "126: cannot run 'a b': its #! line names the interpreter " + text +
           ", which is not executable; correct the line"},
      {{at("bin"), ""},
       "126: cannot run 'a b': its #! line names the interpreter " + at("bin") +
           ", which is not executable; correct the line"},
      {{shell + "\r", ""}, carriage},
      {{shell, "-e\r"}, carriage},
  };
  for (const HashBangCase& one : cases)
    EXPECT_EQ(told_of(check_hash_bang("a b", one.line, at("bin"))), one.told);
}

RC_GTEST_PROP(ProgramFile, HasAHashBangOfTwoTrimmedWords, ()) {
  const auto any_text =
      rc::gen::container<std::string>(rc::gen::element('a', '/', ' ', '\t', '\n', '-', '\r', '\0'));
  const std::string text = *any_text;
  const HashBang line = parse_hash_bang("#!" + text);
  RC_ASSERT(line.interpreter.find_first_of(" \t\n") == std::string::npos);
  RC_ASSERT(line.interpreter.empty() <= line.argument.empty());
  RC_ASSERT(line.argument.find('\n') == std::string::npos);
  if (!line.argument.empty()) {
    RC_ASSERT(std::string(" \t").find(line.argument.front()) == std::string::npos);
    RC_ASSERT(std::string(" \t").find(line.argument.back()) == std::string::npos);
  }
  const HashBang again = parse_hash_bang("#!" + line.interpreter + " " + line.argument);
  RC_ASSERT(again.interpreter == line.interpreter && again.argument == line.argument);
}

#if defined(__aarch64__)
constexpr uint16_t kMachineHere = EM_AARCH64;
constexpr uint16_t kSmallMachineHere = EM_ARM;
#else
constexpr uint16_t kMachineHere = EM_X86_64;
constexpr uint16_t kSmallMachineHere = EM_386;
#endif

// An executable whose second segment names its loader.
template <typename Header, typename Segment>
std::string image_with_loader(unsigned char elf_class, uint16_t machine, const std::string& loader,
                              uint16_t type = ET_DYN) {
  Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = type;
  header.e_machine = machine;
  header.e_phoff = sizeof(Header);
  header.e_phentsize = sizeof(Segment);
  header.e_phnum = 2;
  Segment segments[2]{};
  segments[0].p_type = PT_LOAD;
  segments[1].p_type = PT_INTERP;
  segments[1].p_offset = sizeof(header) + sizeof(segments);
  segments[1].p_filesz = static_cast<decltype(segments[1].p_filesz)>(loader.size() + 1);
  std::string image(reinterpret_cast<const char*>(&header), sizeof(header));
  image.append(reinterpret_cast<const char*>(segments), sizeof(segments));
  return image + loader + '\0' + "more";
}

std::string wide_image(const std::string& loader) {
  return image_with_loader<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, kMachineHere, loader);
}

std::string small_image(const std::string& loader) {
  return image_with_loader<Elf32_Ehdr, Elf32_Phdr>(ELFCLASS32, kSmallMachineHere, loader);
}

TEST(ProgramFile, NeedsAnElfHeaderOfThisMachine) {
  const auto image = [](unsigned char elf_class, uint16_t machine, uint16_t type) {
    return image_with_loader<Elf64_Ehdr, Elf64_Phdr>(elf_class, machine, "/dev/null", type);
  };
  std::string big_endian = image(ELFCLASS64, kMachineHere, ET_EXEC);
  big_endian[EI_DATA] = ELFDATA2MSB;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {image(ELFCLASS64, kMachineHere, ET_EXEC).substr(0, 63), "its ELF header is cut off"},
      {image(7, kMachineHere, ET_EXEC), "its ELF header is damaged"},
      {big_endian, "it is for a big-endian machine"},
      {image(ELFCLASS64, EM_S390, ET_EXEC), "it is for s390"},
      {image(ELFCLASS64, EM_RISCV, ET_DYN), "it is for RISC-V"},
      {image(ELFCLASS64, 4711, ET_DYN), "it is for machine type 4711"},
      {image(ELFCLASS64, kMachineHere, ET_REL), "it is an object or core file, not an executable"},
      {image(ELFCLASS64, kMachineHere, ET_CORE), "it is an object or core file, not an executable"},
  };
  for (const auto& [head, why] : cases) {
    EXPECT_EQ(told_of(check_elf("x", head)),
              "126: cannot run x: " + why + "; rebuild it for this machine");
  }
  EXPECT_EQ(told_of(check_elf("x", image(ELFCLASS64, kMachineHere, ET_EXEC))), "fine");
}

TEST(ProgramFile, NeedsItsElfLoader) {
  const std::string missing =
      "127: cannot run x: its loader /no/ld.so does not exist; install it or rebuild the program "
      "for this system";
  EXPECT_EQ(told_of(check_elf("x", wide_image("/dev/null"))), "fine");
  EXPECT_EQ(told_of(check_elf("x", small_image("/dev/null"))), "fine");
  EXPECT_EQ(told_of(check_elf("x", wide_image("/no/ld.so"))), missing);
  EXPECT_EQ(told_of(check_elf("x", small_image("/no/ld.so"))), missing);
}

TEST(ProgramFile, IsAcceptedIfItsElfLoaderIsBeyondTheHead) {
  for (const std::string& image : {wide_image("/no/ld.so"), small_image("/no/ld.so")})
    EXPECT_EQ(told_of(check_elf("x", image.substr(0, image.find("/no/ld.so")))), "fine");
}

TEST(ProgramFile, IsAcceptedIfItRunsTheseTests) {
  const ProgramFile self = inspect_program("/proc/self/exe");
  EXPECT_EQ(self.kind, FileKind::elf);
  EXPECT_TRUE(self.executable);
  EXPECT_EQ(told_of(check_elf("x", self.head)), "fine");
}

// Damages the header in any place, with offsets and counts up to the largest numbers.
RC_GTEST_PROP(ProgramFile, IsReadWithinItsHeadIfItsElfHeaderIsDamaged, ()) {
  std::string image = *rc::gen::element(wide_image("/no/ld.so"), small_image("/no/ld.so"));
  const auto bytes = *rc::gen::container<std::vector<std::pair<size_t, char>>>(
      rc::gen::pair(rc::gen::inRange<size_t>(EI_DATA + 1, image.size()),
                    rc::gen::element('\0', '\1', '\x7f', '\xff', '\x40')));
  for (const auto& [at, byte] : bytes)
    image[at] = byte;
  image.resize(*rc::gen::inRange<size_t>(0, image.size() + 1));
  const std::vector<char> exact(image.begin(), image.end());  // Shows its end to a sanitizer.
  const std::string told = told_of(check_elf("x", std::string_view(exact.data(), exact.size())));
  RC_ASSERT(told == "fine" || told.starts_with("126: cannot run x: it") ||
            told.starts_with("127: cannot run x: its loader "));
}

}  // namespace
}  // namespace muster
