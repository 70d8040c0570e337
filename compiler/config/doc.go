// Package config holds the compiler's configuration: a KRM object of kind
// CompilerConfig, its defaults and its checks.
//
// A file is read strictly: an unknown field, a wrong type and an impossible
// value are errors with file, line and column. What the file leaves out keeps
// its default. The values are plain data; nothing here acts on them.
//
// # Decisions
//
// What only HAProxy can judge of the configuration is judged by itself, before anything
// is compiled: names of ciphers, a log-format, whether QUIC was built in. In a whole
// haproxy.cfg such a mistake shows at a line that a template wrote; alone it leads back
// to the line and column of the configuration.
package config
