// Package assert tests configurations and templates: it compiles what a
// CompilerTest names, and says which of its assertions do not hold, and where
// they stand.
//
// An assertion is about the text of a file or a section, about who answers a
// request, which a HAProxy of the test's own says (package sandbox), or about what
// the compiler reports. Whatever is reported as an error and not expected fails
// the test too: a mistake must not pass because nobody asserted anything of it.
//
// # Decisions
//
// A test fails for an error that nobody expects, beside its assertions: objects that are
// left out change no assertion about others, and would go unseen. Tests are found by what
// is in a file, not by its name, so that no wrong name leaves one out.
package assert
