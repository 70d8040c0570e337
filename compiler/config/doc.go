// Package config holds the compiler's configuration: a KRM object of kind CompilerConfig,
// its defaults and its checks.
//
// A file is read strictly: an unknown field, a wrong type and an impossible value are
// errors with file, line and column. Fields that the file leaves out keep their defaults.
// The values are plain data; nothing here acts on them.
//
// # Decisions
//
// Some values only HAProxy can check: names of ciphers, a log-format, whether QUIC was
// built in. The compiler checks them alone, before it compiles anything. In a whole
// haproxy.cfg such a mistake shows at a line that a template wrote; alone it leads back to
// the line and column of the configuration.
package config
