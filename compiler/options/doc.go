// Package options knows the annotations below hapsnap.dev/: their names, what
// may be written in them, and which filters and policies they ask for.
//
// There is one registry, [All], which is read by the compiler, by the document
// that lists the options, and by the tests that try to smuggle something through
// each of them. Every value is parsed into a type where it enters; text that
// has no type of its own, such as a header's value, is held to characters that
// cannot end a line. Package routing says where the result belongs.
package options
