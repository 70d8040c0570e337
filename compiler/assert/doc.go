// Package assert tests configurations and templates: it compiles what a CompilerTest names, and reports
// which of its assertions fail, and where they stand.
//
// An assertion is about the text of a file or a section, about who answers a request, which it asks a
// HAProxy of the test's own (package sandbox), or about the compiler's diagnostics. An error that the
// test does not expect makes it fail too: a mistake must not pass because nobody asserted anything
// about it.
//
// # Decisions
//
// A test fails for an error that it does not expect, beside its assertions: objects that are left out
// change no assertion about others, and would go unseen. Tests are found by the content of a file, not
// by its name, so that no wrong name leaves one out.
package assert
