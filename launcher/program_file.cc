#include "launcher/program_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/process/helper_command.h"
#include "launcher/values/values.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr std::size_t kHeadBytes = 4096;
constexpr std::size_t kScriptBytes = 1 << 20;  // The part of a script's text that is searched.
constexpr std::string_view kNotReadable = "no permission to read it; check its permissions";

// The reason why a system call failed, to follow "cannot run X: ".
std::string refusal(int error, std::string_view on_no_permission) {
  if (error == EACCES) return std::string(on_no_permission);
  if (error == ENAMETOOLONG) return "its name is too long; give a shorter path";
  if (error == ELOOP) return "its symbolic links form a loop; correct the links";
  return fmt::format("it cannot be read ({}); name another file", std::strerror(error));
}

// Returns 0 or errno.
int read_head(const std::string& path, std::string& head, std::size_t size = kHeadBytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno;
  head.resize(size);
  const ssize_t count = ::pread(fd.get(), head.data(), head.size(), 0);
  const int error = count < 0 ? errno : 0;
  head.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return error;
}

ProgramFile unseen_file(const std::string& path, int error) {
  ProgramFile file;
  if (error != ENOENT && error != ENOTDIR) {
    file.kind = FileKind::out_of_reach;
    file.reason =
        refusal(error, "no permission to look at it; check the permissions of its folders");
    return file;
  }
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
  if (!no_link) {
    file.reason = fmt::format("it is a symbolic link to {}, which does not exist; correct the link",
                              shown(target.native()));
  }
  return file;
}

// Opens a character device, because only that shows whether it is a terminal, but not a pipe: a
// writer that waits for its reader would take us for the reader.
ProgramFile special_file(const std::string& path, unsigned mode) {
  ProgramFile file;
  file.kind = FileKind::unreadable;
  if (!S_ISFIFO(mode) && !S_ISCHR(mode)) {
    file.reason = fmt::format("it is {}; name a file", file_type(mode));
    return file;
  }
  bool terminal = false;
  int error = ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  if (error == 0 && S_ISCHR(mode)) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    error = fd ? 0 : errno;
    terminal = fd && ::isatty(fd.get()) == 1;
  }
  if (error != 0) {
    file.reason = refusal(error, kNotReadable);
  } else if (terminal) {
    file.reason = "it is a terminal; name a file, or give - to type a program for Python";
  } else {
    file.kind = FileKind::stream;
    file.reason = fmt::format("it is {}; name a file", file_type(mode));
  }
  return file;
}

FileKind kind_of(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\x7f"
                       "ELF")) {
    return FileKind::elf;
  }
  if (head.starts_with("#!")) return FileKind::hash_bang;
  if (head.starts_with("PK\x03\x04"sv)) return FileKind::zip;
  return head.find('\0') == std::string_view::npos ? FileKind::text : FileKind::binary;
}

bool machine_runs_here(unsigned machine) {
#if defined(__x86_64__)
  return machine == EM_X86_64 || machine == EM_386;
#elif defined(__aarch64__)
  return machine == EM_AARCH64 || machine == EM_ARM;
#else
  return machine != EM_NONE;
#endif
}

std::string machine_name(unsigned machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "x86";
    case EM_AARCH64:
      return "64-bit ARM";
    case EM_ARM:
      return "ARM";
    case EM_PPC64:
      return "POWER";
    case EM_RISCV:
      return "RISC-V";
    case EM_S390:
      return "s390";
    default:
      return fmt::format("machine type {}", machine);
  }
}

template <typename T>
bool copy_from(std::string_view bytes, std::size_t offset, T& target) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&target, bytes.data() + offset, sizeof(T));
  return true;
}

// The loader that a dynamic executable names; empty if the head names none.
template <typename Header, typename Segment>
std::string loader_of(std::string_view head) {
  Header header{};
  if (!copy_from(head, 0, header)) return {};
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    const std::size_t at = header.e_phoff + std::size_t{i} * header.e_phentsize;
    if (!copy_from(head, at, segment)) return {};
    if (segment.p_type != PT_INTERP) continue;
    if (segment.p_offset >= head.size()) return {};
    const std::string_view name = head.substr(segment.p_offset, segment.p_filesz);
    return std::string(name.substr(0, name.find('\0')));
  }
  return {};
}

tl::unexpected<Error> bad_elf(std::string_view path, const std::string& why) {
  return cannot_run(ExitCode::cannot_execute, path, why + "; rebuild it for this machine");
}

}  // namespace

tl::unexpected<Error> cannot_run(ExitCode code, std::string_view program, std::string_view why) {
  return fail(code, fmt::format("cannot run {}: {}", shown(program), why));
}

std::string_view file_type(unsigned mode) {
  switch (mode & S_IFMT) {
    case S_IFIFO:
      return "a pipe";
    case S_IFCHR:
      return "a character device";
    case S_IFBLK:
      return "a block device";
    default:
      return "a socket";
  }
}

ProgramFile inspect_program(const std::string& path) {
  ProgramFile file;
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return unseen_file(path, errno);
  if (S_ISDIR(status.st_mode)) {
    file.kind = FileKind::directory;
    return file;
  }
  if (!S_ISREG(status.st_mode)) return special_file(path, status.st_mode);
  file.executable = ::access(path.c_str(), X_OK) == 0;
  const int error = read_head(path, file.head);
  file.kind = error == 0 ? kind_of(file.head) : FileKind::unreadable;
  if (error != 0) file.reason = refusal(error, kNotReadable);
  return file;
}

bool names_flag(const std::string& path, std::string name) {
  struct stat status{};
  std::string text;
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return true;
  if (read_head(path, text, kScriptBytes) != 0 || text.find(name) != std::string::npos) return true;
  std::replace(name.begin(), name.end(), '-', '_');
  return text.find(name) != std::string::npos;
}

HashBang parse_hash_bang(std::string_view head) {
  head.remove_prefix(2);
  std::string_view line = head.substr(0, head.find('\n'));
  const std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  line = line.substr(first, line.find_last_not_of(" \t") - first + 1);
  const std::size_t end = line.find_first_of(" \t");
  HashBang result{std::string(line.substr(0, end)), {}};
  if (end != std::string_view::npos)
    result.argument = line.substr(line.find_first_not_of(" \t", end));
  return result;
}

Result<void> check_hash_bang(const std::string& shown_path, const HashBang& line,
                             std::string_view path_list) {
  if (line.interpreter.ends_with('\r') || line.argument.ends_with('\r')) {
    return cannot_run(ExitCode::cannot_execute, shown_path,
                      "its #! line ends in a carriage return; convert the file to Unix line ends, "
                      "as by dos2unix");
  }
  struct stat status{};
  if (line.interpreter.empty() || ::stat(line.interpreter.c_str(), &status) != 0) {
    return cannot_run(ExitCode::not_found, shown_path,
                      fmt::format("its #! line names the interpreter {}, which does not exist; "
                                  "correct the line or install it",
                                  shown(line.interpreter)));
  }
  if (!is_executable_file(line.interpreter)) {
    return cannot_run(ExitCode::cannot_execute, shown_path,
                      fmt::format("its #! line names the interpreter {}, which is not executable; "
                                  "correct the line",
                                  shown(line.interpreter)));
  }
  const bool env = line.interpreter.ends_with("/env");
  const bool bare = !line.argument.empty() && line.argument.find_first_of("-=/ \t") != 0 &&
                    line.argument.find_first_of("=/ \t") == std::string::npos;
  if (env && bare && find_on_path(line.argument, path_list).empty()) {
    return cannot_run(ExitCode::not_found, shown_path,
                      fmt::format("its #! line asks env for {}, which is not on PATH; correct the "
                                  "line or install it",
                                  shown(line.argument)));
  }
  return {};
}

Result<void> check_elf(const std::string& shown_path, std::string_view head) {
  Elf64_Ehdr header{};  // Both classes have the same layout up to e_machine.
  const bool wide = head.size() > EI_CLASS && head[EI_CLASS] == ELFCLASS64;
  const std::size_t size = wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr);
  if (head.size() < size) return bad_elf(shown_path, "its ELF header is cut off");
  std::memcpy(&header, head.data(), size);
  if (!wide && head[EI_CLASS] != ELFCLASS32)
    return bad_elf(shown_path, "its ELF header is damaged");
  if (head[EI_DATA] != ELFDATA2LSB) return bad_elf(shown_path, "it is for a big-endian machine");
  if (!machine_runs_here(header.e_machine))
    return bad_elf(shown_path, "it is for " + machine_name(header.e_machine));
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
    return bad_elf(shown_path, "it is an object or core file, not an executable");
  const std::string loader =
      wide ? loader_of<Elf64_Ehdr, Elf64_Phdr>(head) : loader_of<Elf32_Ehdr, Elf32_Phdr>(head);
  if (!loader.empty() && ::access(loader.c_str(), F_OK) != 0) {
    return cannot_run(ExitCode::not_found, shown_path,
                      fmt::format("its loader {} does not exist; install it or rebuild the program "
                                  "for this system",
                                  shown(loader)));
  }
  return {};
}

}  // namespace muster
