// `stampmill serve`: the daemon's command line and configuration, its signals, its port file.
#pragma once

namespace stampmill {

// argv[0] is "serve". The exit status (see command_line.h).
int RunServe(int argc, char** argv);

}  // namespace stampmill
