// Package config holds the compiler's configuration: a KRM object of kind
// CompilerConfig, its defaults and its checks.
//
// A file is read strictly: an unknown field, a wrong type and an impossible
// value are errors with file, line and column. What the file leaves out keeps
// its default. The values are plain data; nothing here acts on them.
package config
