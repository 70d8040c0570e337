package process

import "runtime/debug"

// version is set by the linker: -X github.com/hapsnap/hapsnap/internal/process.version=v1.2.3
var version string

// Version returns the version of the program: what the linker was told, else
// the version of the module, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
