// Package explain leads a line of a rendered file back to where it came from: the line of a template,
// and the objects and fields whose values it has.
//
// It knows only what the renderer recorded: the objects are those that the template was executed for
// when it wrote the line. It compiles nothing itself.
package explain
