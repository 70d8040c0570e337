// Package assert tests configurations and templates: it compiles what a
// CompilerTest names, and says which of its assertions do not hold, and where
// they stand.
//
// An assertion is about the text of a file or a section, about who answers a
// request, which a HAProxy of the test's own says (package trial), or about what
// the compiler reports. Whatever is reported as an error and not expected fails
// the test too: a mistake must not pass because nobody asserted anything of it.
package assert
