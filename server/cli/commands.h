// The subcommands of stampmill. Each parses its own arguments (argv[0] is its name) and returns the
// exit status of command_line.h.
#pragma once

namespace stampmill {

int RunCompile(int argc, char** argv);
int RunRun(int argc, char** argv);
int RunGenerate(int argc, char** argv);
int RunInspect(int argc, char** argv);
int RunDevices(int argc, char** argv);
int RunCache(int argc, char** argv);
int RunBench(int argc, char** argv);
// `bench model`, `bench kernel` and `bench serve`; RunBench hands over to them.
int RunBenchModel(int argc, char** argv);
int RunBenchKernel(int argc, char** argv);
int RunBenchServe(int argc, char** argv);

}  // namespace stampmill
