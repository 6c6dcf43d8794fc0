#include "launcher/program.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launcher/program_file.h"
#include "tests/fakes/temp_tree.h"

namespace muster {

void PrintTo(const Command& command, std::ostream* out) {
  *out << command.executable << ":";
  for (const std::string& word : command.argv)
    *out << " '" << word << "'";
  *out << " first_arg " << command.first_arg << (command.pass_local_rank ? " passes rank" : "");
}

namespace {

using ProgramWords = std::vector<std::string>;

// A machine in one folder: here/ is the current folder, and bin/, with a python3, is all of PATH.
class Programs : public ::testing::Test {
 protected:
  Programs() {
    add("bin/python3", "#!/bin/sh\n", 0755);
    std::filesystem::create_directories(tree_.root() / "here");
    host_.environment["PATH"] = at("bin");
    host_.cwd = at("here");
  }

  std::string at(const std::string& path) const { return (tree_.root() / path).string(); }

  void add(const std::string& path, const std::string& content, mode_t mode = 0644) const {
    tree_.write(path, "");
    std::ofstream(tree_.root() / path, std::ios::trunc | std::ios::binary) << content;
    ASSERT_EQ(chmod(at(path).c_str(), mode), 0);
  }

  static LaunchSpec spec(RunMode mode, std::string program, ProgramWords args = {}) {
    LaunchSpec result;
    result.mode = mode;
    result.program = std::move(program);
    result.args = std::move(args);
    return result;
  }

  Result<Command> resolved(const std::string& program, RunMode mode = RunMode::script) const {
    return resolve_command(spec(mode, program), host_);
  }

  // The command that runs the program `name` of the current folder in Python.
  Command python_runs(const std::string& name) const {
    return Command{at("bin/python3"), {at("bin/python3"), "-u", name}, 3, false};
  }

  void expect_error(const std::string& program, ExitCode code, const std::string& message,
                    RunMode mode = RunMode::script) const {
    const Result<Command> command = resolved(program, mode);
    ASSERT_FALSE(command.has_value()) << program;
    EXPECT_EQ(command.error(), (Error{code, message}));
  }

  TempTree tree_;
  HostView host_;
};

TEST_F(Programs, RunInUnbufferedPythonByTheirExtension) {
  add("here/train.py", "print(1)\n");
  add("here/tool.pyw", "print(1)\n");
  EXPECT_EQ(resolved("train.py"), Result<Command>(python_runs("train.py")));
  EXPECT_EQ(resolved("tool.pyw"), Result<Command>(python_runs("tool.pyw")));
  EXPECT_EQ(resolved(at("here/train.py")), Result<Command>(python_runs(at("here/train.py"))));
}

TEST_F(Programs, RunInPythonByTheirExtensionWhateverTheHashBang) {
  add("here/train.py", "#!/no/such/interpreter\n", 0755);
  EXPECT_EQ(resolved("train.py"), Result<Command>(python_runs("train.py")));
}

TEST_F(Programs, GetTheirArgumentsVerbatim) {
  add("here/train.py", "");
  const ProgramWords args{"--lr", "", "[1,2]", "--", "$x"};
  EXPECT_EQ(resolve_command(spec(RunMode::script, "train.py", args), host_),
            Result<Command>(
                Command{at("bin/python3"),
                        {at("bin/python3"), "-u", "train.py", "--lr", "", "[1,2]", "--", "$x"},
                        3,
                        false}));
}

TEST_F(Programs, RunThroughPythonIfTheyAreModules) {
  LaunchSpec module = spec(RunMode::module, "pkg.train", {"a"});
  module.pass_local_rank = true;
  EXPECT_EQ(resolve_command(module, host_),
            Result<Command>(Command{
                at("bin/python3"), {at("bin/python3"), "-u", "-m", "pkg.train", "a"}, 4, true}));
}

TEST_F(Programs, RunInPythonWithoutAnExtensionAsInTorchrun) {
  add("here/train", "print(1)\n");
  add("here/train_executable", "print(1)\n", 0755);
  add("here/empty", "");
  for (const char* name : {"train", "train_executable", "empty"}) {
    EXPECT_EQ(resolved(name), Result<Command>(python_runs(name)));
  }
}

TEST_F(Programs, NeedNotBeExecutableIfTheirHashBangNamesPython) {
  add("here/direct", "#!/opt/python3.11 -O\n");
  add("here/by_env.sh", "#!/usr/bin/env python\n");
  EXPECT_EQ(resolved("direct"), Result<Command>(python_runs("direct")));
  EXPECT_EQ(resolved("by_env.sh"), Result<Command>(python_runs("by_env.sh")));
}

TEST_F(Programs, RunInPythonIfTheyAreFoldersOrArchives) {
  add("here/package/__main__.py", "");
  add("here/app.pyz", std::string("PK\x03\x04\0\0", 6), 0755);
  add("here/app.zip", std::string("PK\x03\x04\0\0", 6));
  for (const char* name : {"package", "app.pyz", "app.zip"}) {
    EXPECT_EQ(resolved(name), Result<Command>(python_runs(name)));
  }
}

TEST_F(Programs, RunDirectlyIfTheyHaveAHashBang) {
  add("here/run.sh", "#!/bin/sh\nexit 0\n", 0755);
  add("here/run", "#! /bin/sh -e\nexit 0\n", 0755);
  EXPECT_EQ(resolved("run.sh"), Result<Command>(Command{"./run.sh", {"run.sh"}, 1, false}));
  EXPECT_EQ(resolved("./run"), Result<Command>(Command{"./run", {"./run"}, 1, false}));
  EXPECT_EQ(resolved(at("here/run")),
            Result<Command>(Command{at("here/run"), {at("here/run")}, 1, false}));
  add("here/by_env", "#!/usr/bin/env python3\n", 0755);
  EXPECT_EQ(resolved("by_env"), Result<Command>(Command{"./by_env", {"by_env"}, 1, false}));
}

TEST_F(Programs, RunDirectlyIfTheyAreElfFiles) {
  std::filesystem::create_symlink("/proc/self/exe", at("here/solver"));
  EXPECT_EQ(resolved("solver"), Result<Command>(Command{"./solver", {"solver"}, 1, false}));
  EXPECT_EQ(resolved("/proc/self/exe").value().executable, "/proc/self/exe");
}

TEST_F(Programs, AreLookedUpOnPathIfTheCurrentFolderHasNoneOfTheirName) {
  add("bin/tool", "#!/bin/sh\n", 0755);
  EXPECT_EQ(resolved("tool"), Result<Command>(Command{at("bin/tool"), {"tool"}, 1, false}));
  add("here/tool", "#!/bin/sh\n", 0755);
  EXPECT_EQ(resolved("tool"), Result<Command>(Command{"./tool", {"tool"}, 1, false}));
}

TEST_F(Programs, AreFoundOnPathDespiteAFolderOfTheirName) {
  std::filesystem::create_directories(at("here/python3"));
  EXPECT_EQ(resolved("python3"),
            Result<Command>(Command{at("bin/python3"), {"python3"}, 1, false}));
}

TEST_F(Programs, FailWithNotFoundIfTheyAreMissing) {
  expect_error("train.py", ExitCode::not_found,
               "cannot run train.py: no such file; check the name and the folder");
  expect_error("./tool", ExitCode::not_found,
               "cannot run ./tool: no such file; check the name and the folder");
  expect_error("tool", ExitCode::not_found,
               "cannot run tool: no such file here and no such program on PATH; check the name and "
               "the folder");
  expect_error("a/b\nc", ExitCode::not_found,
               "cannot run a/b\\nc: no such file; check the name and the folder");
  expect_error("x.py", ExitCode::not_found,
               "cannot run x.py: no such file; check the name and the folder", RunMode::run_path);
}

TEST_F(Programs, AreMissingIfTheirPathLeadsThroughAFile) {
  add("here/file", "");
  expect_error("file/train.py", ExitCode::not_found,
               "cannot run file/train.py: no such file; check the name and the folder");
}

TEST_F(Programs, CannotBeFoldersWithoutAMainFile) {
  std::filesystem::create_directories(at("here/folder"));
  const std::string message =
      "cannot run folder/: it is a folder without __main__.py; name the program within it";
  expect_error("folder/", ExitCode::cannot_execute, message);
  expect_error("folder/", ExitCode::cannot_execute, message, RunMode::direct);
  expect_error("folder", ExitCode::cannot_execute,
               "cannot run folder: it is a folder without __main__.py; name the program within it");
}

TEST_F(Programs, NameTheRemedyIfTheirModeBitIsMissing) {
  add("here/run.sh", "#!/bin/sh\n");
  add("here/notes.txt", "hello\n");
  add("here/solver", ELFMAG);
  for (const char* name : {"run.sh", "notes.txt", "solver"}) {
    expect_error(name, ExitCode::cannot_execute,
                 std::string("cannot run ") + name +
                     ": it is not executable; make it so by chmod +x, or name it .py if it is "
                     "Python");
  }
  expect_error("./run.sh", ExitCode::cannot_execute,
               "cannot run ./run.sh: it is not executable; make it so by chmod +x",
               RunMode::direct);
}

TEST_F(Programs, NeedAHashBangIfTheyAreText) {
  add("here/run.sh", "exit 0\n", 0755);
  const std::string remedy =
      "it is text without a #! line; add one, or name it .py if it is Python";
  expect_error("run.sh", ExitCode::cannot_execute, "cannot run run.sh: " + remedy);
  expect_error("./run.sh", ExitCode::cannot_execute, "cannot run ./run.sh: " + remedy,
               RunMode::direct);
}

TEST_F(Programs, AreRefusedIfTheirFormatIsUnknown) {
  add("here/data", std::string("\x00\x01\x02", 3), 0755);
  expect_error("data", ExitCode::cannot_execute,
               "cannot run data: this system cannot execute its format; rebuild it, or give its "
               "interpreter as the program");
}

TEST_F(Programs, SayWhatIsWrongWithTheirElfHeader) {
  add("here/solver", ELFMAG, 0755);
  expect_error("solver", ExitCode::cannot_execute,
               "cannot run solver: its ELF header is cut off; rebuild it for this machine");
}

TEST_F(Programs, NameTheInterpreterThatIsMissing) {
  add("here/run", "#!/no/such/shell -e\n", 0755);
  expect_error("run", ExitCode::not_found,
               "cannot run run: its #! line names the interpreter /no/such/shell, which does not "
               "exist; correct the line or install it");
  add("here/run", "#!/usr/bin/env no_such_tool\n", 0755);
  expect_error("run", ExitCode::not_found,
               "cannot run run: its #! line asks env for no_such_tool, which is not on PATH; "
               "correct the line or install it");
}

TEST_F(Programs, RunInPythonIfReadFromStandardInput) {
  add("here/-", "#!/bin/sh\n", 0755);
  add("bin/-", "#!/bin/sh\n", 0755);
  Command command = python_runs("-");
  EXPECT_EQ(resolved("-"), Result<Command>(command));
  command.argv.insert(command.argv.end(), {"--lr", "-"});
  EXPECT_EQ(resolve_command(spec(RunMode::script, "-", {"--lr", "-"}), host_),
            Result<Command>(command));
}

TEST_F(Programs, RunInPythonIfTheyArePipesOrDevices) {
  ASSERT_EQ(mkfifo(at("here/pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(at("here/pipe.sh").c_str(), 0700), 0);
  for (const char* name : {"pipe", "pipe.sh", "./pipe", "/dev/null"}) {
    EXPECT_EQ(resolved(name), Result<Command>(python_runs(name)));
  }
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string name = "/dev/fd/" + std::to_string(ends[0]);
  EXPECT_EQ(resolved(name), Result<Command>(python_runs(name)));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Programs, AreNotReadFromAPipeBeforeTheyRun) {
  ASSERT_EQ(mkfifo(at("here/pipe").c_str(), 0600), 0);
  const int reader = open(at("here/pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int writer = open(at("here/pipe").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_EQ(write(writer, "print(1)", 8), 8);
  ASSERT_TRUE(resolved("pipe").has_value());
  char text[8];
  EXPECT_EQ(read(reader, text, sizeof(text)), 8);
  EXPECT_EQ(std::string(text, 8), "print(1)");
  close(reader);
  close(writer);
}

TEST_F(Programs, MayBePipesOrDevicesInScriptModeOnly) {
  ASSERT_EQ(mkfifo(at("here/pipe").c_str(), 0700), 0);
  for (const RunMode mode : {RunMode::direct, RunMode::run_path}) {
    expect_error("./pipe", ExitCode::cannot_execute, "cannot run ./pipe: it is a pipe; name a file",
                 mode);
    expect_error("/dev/null", ExitCode::cannot_execute,
                 "cannot run /dev/null: it is a character device; name a file", mode);
  }
}

TEST_F(Programs, AreNotReadFromATerminalByItsName) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  expect_error(name, ExitCode::cannot_execute,
               "cannot run " + name +
                   ": it is a terminal; name a file, or give - to type a program for Python");
  close(terminal);
}

TEST_F(Programs, CannotBeSockets) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = at("here/socket");
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const RunMode mode : {RunMode::script, RunMode::direct, RunMode::run_path}) {
    expect_error("./socket", ExitCode::cannot_execute,
                 "cannot run ./socket: it is a socket; name a file", mode);
  }
  close(fd);
}

TEST_F(Programs, SayThatTheirNameIsTooLong) {
  const std::string name = "./" + std::string(300, 'x');
  for (const RunMode mode : {RunMode::script, RunMode::direct, RunMode::run_path}) {
    expect_error(
        name, ExitCode::cannot_execute,
        "cannot run " + name.substr(0, 80) + "...: its name is too long; give a shorter path",
        mode);
  }
  expect_error(
      std::string(300, 'x'), ExitCode::not_found,
      "cannot run " + std::string(80, 'x') +
          "...: not found on PATH; in this folder: its name is too long; give a shorter path");
}

TEST_F(Programs, SayThatTheirLinksFormALoop) {
  std::filesystem::create_symlink("second.py", at("here/first.py"));
  std::filesystem::create_symlink("first.py", at("here/second.py"));
  for (const RunMode mode : {RunMode::script, RunMode::direct, RunMode::run_path}) {
    expect_error("./first.py", ExitCode::cannot_execute,
                 "cannot run ./first.py: its symbolic links form a loop; correct the links", mode);
  }
}

TEST_F(Programs, SayWhereTheirBrokenLinkPoints) {
  std::filesystem::create_symlink("../old/train.py", at("here/train.py"));
  std::filesystem::create_symlink("/no/such/tool", at("here/tool"));
  const std::string where =
      "it is a symbolic link to ../old/train.py, which does not exist; correct the link";
  expect_error("train.py", ExitCode::not_found, "cannot run train.py: " + where);
  for (const RunMode mode : {RunMode::script, RunMode::direct, RunMode::run_path}) {
    expect_error("./train.py", ExitCode::not_found, "cannot run ./train.py: " + where, mode);
  }
  expect_error("tool", ExitCode::not_found,
               "cannot run tool: not found on PATH; in this folder: it is a symbolic link to "
               "/no/such/tool, which does not exist; correct the link");
  add("bin/tool", "#!/bin/sh\n", 0755);
  EXPECT_EQ(resolved("tool"), Result<Command>(Command{at("bin/tool"), {"tool"}, 1, false}));
}

TEST(FileType, IsNamedInWords) {
  EXPECT_EQ(file_type(S_IFBLK | 0660), "a block device");
  EXPECT_EQ(file_type(S_IFSOCK | 0755), "a socket");
  EXPECT_EQ(file_type(S_IFIFO), "a pipe");
  EXPECT_EQ(file_type(S_IFCHR), "a character device");
}

// The current folder belongs to another user and denies all access.
class ProgramsOfAStranger : public Programs {
 protected:
  ProgramsOfAStranger() {
    add("here/train.py", "");
    chmod(at("").c_str(), 0755);
    chmod(at("here").c_str(), 0000);
    // Root could still read the folder, so give up its rights.
    if (was_ == 0 && seteuid(65534) != 0) ADD_FAILURE() << "cannot become another user";
  }
  ~ProgramsOfAStranger() override {
    if (seteuid(was_) != 0) ADD_FAILURE() << "cannot become user " << was_;
    chmod(at("here").c_str(), 0755);
  }

  uid_t was_ = geteuid();
};

TEST_F(ProgramsOfAStranger, AreLookedUpOnPath) {
  EXPECT_EQ(resolved("python3"),
            Result<Command>(Command{at("bin/python3"), {"python3"}, 1, false}));
  EXPECT_EQ(resolved("python3", RunMode::direct),
            Result<Command>(Command{at("bin/python3"), {"python3"}, 1, false}));
}

TEST_F(ProgramsOfAStranger, NameTheFoldersAsTheReason) {
  const std::string why = "no permission to look at it; check the permissions of its folders";
  expect_error("tool", ExitCode::not_found,
               "cannot run tool: not found on PATH; in this folder: " + why);
  expect_error("train.py", ExitCode::cannot_execute, "cannot run train.py: " + why);
  for (const RunMode mode : {RunMode::script, RunMode::direct, RunMode::run_path}) {
    expect_error("./train.py", ExitCode::cannot_execute, "cannot run ./train.py: " + why, mode);
  }
}

TEST_F(Programs, AreLookedUpOnPathOnlyInDirectMode) {
  add("bin/tool", "#!/bin/sh\n", 0755);
  EXPECT_EQ(resolved("tool", RunMode::direct),
            Result<Command>(Command{at("bin/tool"), {"tool"}, 1, false}));
  expect_error("other", ExitCode::not_found,
               "cannot run other: no such program on PATH; check the name and the folder",
               RunMode::direct);
  add("here/other", "#!/bin/sh\n", 0755);
  expect_error("other", ExitCode::not_found,
               "cannot run other: no such program on PATH; for the file in this folder give "
               "./other",
               RunMode::direct);
  EXPECT_EQ(resolved("./other", RunMode::direct),
            Result<Command>(Command{"./other", {"./other"}, 1, false}));
}

TEST_F(Programs, AreNotGivenToPythonInDirectMode) {
  add("here/train.py", "#!/bin/sh\n", 0755);
  EXPECT_EQ(resolved("./train.py", RunMode::direct),
            Result<Command>(Command{"./train.py", {"./train.py"}, 1, false}));
}

TEST_F(Programs, RunThroughASmallPythonProgramInRunPathMode) {
  add("here/x.py", "");
  LaunchSpec run_path = spec(RunMode::run_path, "x.py", {"a"});
  const Command command = resolve_command(run_path, host_).value();
  ASSERT_EQ(command.argv.size(), 6u);
  EXPECT_EQ(ProgramWords(command.argv.begin(), command.argv.begin() + 3),
            ProgramWords({at("bin/python3"), "-u", "-c"}));
  EXPECT_NE(command.argv[3].find("runpy.run_path"), std::string::npos);
  EXPECT_EQ(command.argv[3].find('$'), std::string::npos);
  EXPECT_EQ(command.argv[4], "x.py");
  EXPECT_EQ(command.argv[5], "a");
  EXPECT_EQ(command.first_arg, 5u);
}

// Adds Pythons one by one, and asks which of them runs a script.
class PythonChoice : public Programs {
 protected:
  PythonChoice() { add("here/x.py", ""); }

  void add_python(const std::string& path) { add(path, "#!/bin/sh\n", 0755); }

  std::string chosen() const {
    const Result<Command> command = resolved("x.py");
    return command ? command->executable : command.error().message;
  }
};

TEST_F(PythonChoice, PrefersTheFlagThenTheEnvironmentsThenPath) {
  EXPECT_EQ(chosen(), at("bin/python3"));
  add_python("beside/python3");
  host_.muster_directory = at("beside");
  EXPECT_EQ(chosen(), at("beside/python3"));
  add_python("beside/python");
  EXPECT_EQ(chosen(), at("beside/python"));
  add_python("conda/bin/python");
  host_.environment["CONDA_PREFIX"] = at("conda");
  EXPECT_EQ(chosen(), at("conda/bin/python"));
  add_python("venv/bin/python");
  host_.environment["VIRTUAL_ENV"] = at("venv");
  EXPECT_EQ(chosen(), at("venv/bin/python"));
  add_python("own/python");
  host_.environment["PYTHON_EXEC"] = at("own/python");
  EXPECT_EQ(chosen(), at("own/python"));
  LaunchSpec flagged = spec(RunMode::script, "x.py");
  flagged.python = at("bin/python3");
  EXPECT_EQ(resolve_command(flagged, host_).value().executable, at("bin/python3"));
}

TEST_F(PythonChoice, SkipsEnvironmentsWithoutPython) {
  host_.environment["VIRTUAL_ENV"] = at("gone");
  host_.environment["CONDA_PREFIX"] = "";
  host_.environment["PYTHON_EXEC"] = "";
  add("beside/python", "not executable");
  host_.muster_directory = at("beside");
  EXPECT_EQ(chosen(), at("bin/python3"));
}

TEST_F(PythonChoice, SkipsThePythonThatPipxOrUvKeepsForMuster) {
  for (const char* mark : {"pipx_metadata.json", "uv-receipt.toml"}) {
    const std::string environment = std::string("tool-of-") + mark;
    add_python(environment + "/bin/python");
    host_.muster_directory = at(environment + "/bin");
    EXPECT_EQ(chosen(), at(environment + "/bin/python"));
    add(environment + "/" + mark, "");
    EXPECT_EQ(chosen(), at("bin/python3"));
  }
}

TEST_F(PythonChoice, TakesPlainPythonFromPathLast) {
  ASSERT_TRUE(std::filesystem::remove(at("bin/python3")));
  add_python("bin/python");
  EXPECT_EQ(chosen(), at("bin/python"));
}

TEST_F(PythonChoice, LooksBareNamesUpOnPath) {
  add_python("bin/pypy");
  host_.environment["PYTHON_EXEC"] = "pypy";
  EXPECT_EQ(chosen(), at("bin/pypy"));
}

TEST_F(PythonChoice, TakesPathsRelativeToTheCurrentFolder) {
  add_python("here/venv/bin/python");
  host_.environment["PYTHON_EXEC"] = "venv/bin/python";
  EXPECT_EQ(chosen(), "venv/bin/python");
}

TEST_F(PythonChoice, NamesTheInterpreterThatWasAskedFor) {
  const std::string remedy = "; install Python, or name an interpreter by --python or PYTHON_EXEC";
  LaunchSpec flagged = spec(RunMode::script, "x.py");
  flagged.python = "nopython";
  EXPECT_EQ(resolve_command(flagged, host_).error(),
            (Error{ExitCode::not_found, "--python nopython: no such program on PATH" + remedy}));
  flagged.python = "/no/python";
  EXPECT_EQ(resolve_command(flagged, host_).error(),
            (Error{ExitCode::not_found, "--python /no/python: there is no such file" + remedy}));
  add("here/text", "");
  host_.environment["PYTHON_EXEC"] = "./text";
  EXPECT_EQ(resolved("x.py").error(),
            (Error{ExitCode::cannot_execute,
                   "PYTHON_EXEC ./text: it is not an executable file" + remedy}));
}

TEST_F(PythonChoice, SaysWhereItLooked) {
  ASSERT_TRUE(std::filesystem::remove(at("bin/python3")));
  expect_error("x.py", ExitCode::not_found,
               "no Python found for x.py: none in VIRTUAL_ENV, in CONDA_PREFIX, beside muster or "
               "on PATH; install Python, or name an interpreter by --python or PYTHON_EXEC");
}

TEST_F(PythonChoice, DoesNotMatterToExecutables) {
  ASSERT_TRUE(std::filesystem::remove(at("bin/python3")));
  add("here/run", "#!/bin/sh\n", 0755);
  EXPECT_TRUE(resolved("run").has_value());
}

TEST(HashBangLine, IsAnInterpreterAndOneArgument) {
  const std::vector<std::pair<std::string, std::pair<std::string, std::string>>> lines{
      {"#!/bin/sh\n", {"/bin/sh", ""}},
      {"#!/bin/sh", {"/bin/sh", ""}},
      {"#! \t/bin/sh  -e -x \nmore", {"/bin/sh", "-e -x"}},
      {"#!/usr/bin/env python3\n", {"/usr/bin/env", "python3"}},
      {"#!\n", {"", ""}},
      {"#!", {"", ""}},
      {"#!   \n/bin/sh", {"", ""}},
      {"#!/bin/sh  \n", {"/bin/sh", ""}},
      {"#!/bin/sh\r\nexit\r\n", {"/bin/sh\r", ""}},
      {"#!/bin/sh -e\r\n", {"/bin/sh", "-e\r"}},
  };
  for (const auto& [text, expected] : lines) {
    const HashBang line = parse_hash_bang(text);
    EXPECT_EQ(std::pair(line.interpreter, line.argument), expected) << text;
  }
}

ProgramWords argv_of(ProgramWords argv, int local_rank) {
  return worker_argv(Command{"/bin/x", std::move(argv), 1, false}, local_rank);
}

TEST(WorkerArgv, ReplacesTheLocalRankAfterTheProgram) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"${local_rank}", "12"},
      {"$local_rank", "12"},
      {"--out=log.${local_rank}.txt", "--out=log.12.txt"},
      {"$local_rank.txt", "12.txt"},
      {"$local_rank/$local_rank", "12/12"},
      {"$$local_rank", "$local_rank"},
      {"$$$local_rank", "$12"},
      {"$$", "$"},
      {"$$$$", "$$"},
      {"cost $5", "cost $5"},
      {"$", "$"},
      {"a$", "a$"},
      {"$local_rank_x", "$local_rank_x"},
      {"$local_ranks", "$local_ranks"},
      {"$local_rank0", "$local_rank0"},
      {"$LOCAL_RANK", "$LOCAL_RANK"},
      {"${LOCAL_RANK}", "${LOCAL_RANK}"},
      {"${local_rank", "${local_rank"},
      {"${ local_rank }", "${ local_rank }"},
      {"$rank ${rank}", "$rank ${rank}"},
      {"", ""},
  };
  for (const auto& [argument, expected] : cases) {
    EXPECT_EQ(argv_of({"x", argument}, 12), ProgramWords({"x", expected})) << argument;
  }
}

TEST(WorkerArgv, LeavesTheProgramAlone) {
  EXPECT_EQ(argv_of({"$local_rank$$", "$local_rank"}, 0), ProgramWords({"$local_rank$$", "0"}));
}

TEST(WorkerArgv, ReplacesTheLocalRankInAScriptName) {
  EXPECT_EQ(argv_of({"python", "-u", "train_${local_rank}.py"}, 3),
            ProgramWords({"python", "-u", "train_3.py"}));
}

TEST(WorkerArgv, InsertsTheLocalRankBeforeTheArguments) {
  Command command{"/bin/python", {"/bin/python", "-u", "x.py", "--lr", "1"}, 3, true};
  EXPECT_EQ(worker_argv(command, 2),
            ProgramWords({"/bin/python", "-u", "x.py", "--local-rank=2", "--lr", "1"}));
  command.argv.resize(3);
  EXPECT_EQ(worker_argv(command, 0), ProgramWords({"/bin/python", "-u", "x.py", "--local-rank=0"}));
}

RC_GTEST_PROP(WorkerArgv, ChangesNothingWithoutADollar, (const ProgramWords& tail)) {
  ProgramWords argv{"x"};
  for (std::string word : tail) {
    std::erase(word, '$');
    argv.push_back(word);
  }
  RC_ASSERT(argv_of(argv, 7) == argv);
}

}  // namespace
}  // namespace muster
