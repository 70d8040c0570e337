// Package haproxycfg reads a haproxy.cfg as HAProxy reads it: lines, words and sections. All packages
// of this module that look into a haproxy.cfg use it, so that they agree with each other and with
// HAProxy on where a section begins and which words a line has.
//
// The rules are those of section 2.2 (quoting and escaping) and 2.3 (environment variables) of
// HAProxy's configuration manual:
//   - Indentation means nothing. A line begins a section if its first word, after
//     quotes and escapes were resolved, is one of [SectionKeywords].
//   - Blanks separate words. Quotes join, a backslash escapes, # begins a comment
//     outside of quotes, and a carriage return ends the line.
//   - A line that begins with [ is a scope, and has no words.
//
// Two things are not resolved, since the reader cannot know them: the values of environment variables,
// which stay in the word as they are written (see [Word.Variable]), and the conditions of .if blocks. A
// line within such a block is read like any other.
//
// The package allocates memory for words only: a [Line] is a part of the text that was read, which must
// not be changed meanwhile.
package haproxycfg
