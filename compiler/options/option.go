package options

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// Prefix is what the names of all annotations begin with.
const Prefix = "hapsnap.dev/"

// Place is a kind of object that an option may be on.
type Place int

// The places.
const (
	OnIngress Place = 1 << iota
	OnService
	// OnClass are the parameters of an IngressClass: values for those of its
	// Ingresses that have none.
	OnClass

	onBoth = OnIngress | OnService
)

// String returns the kinds of objects, for people.
func (p Place) String() string {
	switch p {
	case OnIngress:
		return "Ingress"
	case OnService:
		return "Service"
	case OnClass:
		return "IngressClass"
	}
	return "Ingress, Service"
}

// Group is the part of the document that an option is described in.
type Group string

// The groups, in the order of the document.
const (
	Routing     Group = "Routing"
	Splitting   Group = "Canaries"
	Backends    Group = "Backends"
	Sessions    Group = "Sessions"
	HeaderEdit  Group = "Headers"
	Protecting  Group = "Protection"
	TCPServices Group = "TCP services"
	Snippets    Group = "Snippets"
)

// Groups are the groups in the order of the document.
var Groups = []Group{Routing, Splitting, Backends, Sessions, HeaderEdit, Protecting, TCPServices, Snippets}

// Option is one annotation.
type Option struct {
	Name    string // without [Prefix]
	Group   Group
	On      Place
	Value   string // what may be written, for people
	Example string // that is valid
	Default string // what holds without it, for people
	Summary string
	// Needs is the option without which this one means nothing, or "".
	Needs string
	// Closes says that the option protects something: if its value cannot be
	// used, requests are answered 503 rather than let through.
	Closes bool
	// Own says that the option is about one Ingress, and no default for many.
	Own bool
	// Matches says that the option changes which requests are matched, and
	// nothing that becomes of them.
	Matches bool

	most int // bytes of a value
	read func(string) (apply, error)
}

// apply puts a value that was read into settings.
type apply func(*Settings)

// The most bytes that a value may have: one word, text, or a list.
const (
	mostWord = 1024
	mostText = 8 << 10
	mostList = 64 << 10
)

// define completes an option with what its value is read by, and where the
// result goes.
func define[T any](o Option, parse func(string) (T, error), set func(*Settings, T)) Option {
	o.read = func(text string) (apply, error) {
		value, err := parse(text)
		return func(s *Settings) { set(s, value) }, err
	}
	if o.most == 0 {
		o.most = mostWord
	}
	return o
}

// mayBe reports whether the option may be on an object of a kind.
func (o Option) mayBe(on Place) bool {
	if on == OnClass {
		return o.On&OnIngress != 0 && !o.Own
	}
	return o.On&on != 0
}

// parse reads a value.
func (o Option) parse(text string) (apply, error) {
	switch {
	case len(text) > o.most:
		return nil, fault(fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("it may have %d", o.most))
	case !utf8.ValidString(text):
		return nil, fault("is not valid UTF-8", "leave the bytes out")
	case strings.TrimSpace(text) == "":
		return nil, fault("is empty", "write "+o.Value+", or remove the annotation")
	}
	return o.read(text)
}

// valueError is what is wrong with a value. Message follows the value, or the
// part of it that About is.
type valueError struct {
	About, Message, Hint string
}

// Error returns what is wrong, without the value.
func (e *valueError) Error() string { return e.Message }

func fault(message, hint string) error { return &valueError{Message: message, Hint: hint} }

// faultOf is a fault of a part of the value.
func faultOf(part, message, hint string) error { return &valueError{part, message, hint} }

// described returns the message and the hint for an error of a value.
func described(value string, err error) (message, hint string) {
	e := &valueError{Message: err.Error()}
	errors.As(err, &e)
	if e.About != "" {
		value = e.About
	}
	return printable.Quoted(value) + " " + e.Message, e.Hint
}
