package spop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
)

// Types of frames (SPOE.txt, 3.2).
const (
	typeHAProxyHello      = 1
	typeHAProxyDisconnect = 2
	typeNotify            = 3
	typeAgentHello        = 101
	typeAgentDisconnect   = 102
	typeAck               = 103
)

// Flags of frames.
const (
	flagFin   = 1
	flagAbort = 2
)

// Kind is the type of a value (SPOE.txt, 3.1).
type Kind byte

// The types of values.
const (
	Null Kind = iota
	Bool
	Int32
	Uint32
	Int64
	Uint64
	IPv4
	IPv6
	String
	Binary
)

// A Value is one that HAProxy sent, or one to be sent. Its bytes are those of a frame.
type Value struct {
	Kind   Kind
	number uint64
	bytes  []byte
}

// Text returns a value that sets a variable to a text.
func Text(s string) Value { return Value{Kind: String, bytes: []byte(s)} }

// Number returns a value that sets a variable to a number.
func Number(n int64) Value { return Value{Kind: Int64, number: uint64(n)} }

// Bytes returns the content of a string or binary value, in the memory of the frame, or nil.
func (v Value) Bytes() []byte {
	if v.Kind == String || v.Kind == Binary {
		return v.bytes
	}
	return nil
}

// Text returns a copy of the content of a string or binary value, an address or a number as text, or "".
func (v Value) Text() string {
	switch v.Kind {
	case String, Binary:
		return string(v.bytes)
	case IPv4, IPv6:
		if addr, ok := netip.AddrFromSlice(v.bytes); ok {
			return addr.String()
		}
	case Int32, Int64, Uint32, Uint64:
		return fmt.Sprint(v.Int())
	}
	return ""
}

// Int returns a number, or 0 if the value is not one.
func (v Value) Int() int64 {
	switch v.Kind {
	case Int32:
		return int64(int32(v.number)) //nolint:gosec // as the protocol has it: sign-extended to 64 bits
	case Int64, Uint32, Uint64, Bool:
		return int64(v.number)
	}
	return 0
}

// An Argument is a named value of a message.
type Argument struct {
	Name  []byte
	Value Value
}

// A Message is one of the messages in a NOTIFY frame.
type Message struct {
	Name []byte
	Args []Argument
}

// maxMessages is how many messages a frame may have. HAProxy sends one for each message of an event or group.
const maxMessages = 64

var errShort = errors.New("the frame ends too early")

// A decoder reads values from the front of a payload. After an error it returns nothing more.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err, d.rest = err, nil
	}
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail(errShort)
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail(errShort)
		return nil
	}
	taken := d.rest[:n:n]
	d.rest = d.rest[n:]
	return taken
}

// varint reads a number of variable length: 240 values in one byte, 2048 in two, seven bits more with each.
func (d *decoder) varint() uint64 {
	first := d.byte()
	if first < 240 {
		return uint64(first)
	}
	n := uint64(first)
	for shift := uint(4); ; shift += 7 {
		b := d.byte()
		if d.err != nil {
			return 0
		}
		if shift > 60 || uint64(b)<<shift>>shift != uint64(b) || n > math.MaxUint64-uint64(b)<<shift {
			d.fail(errors.New("a number is longer than 64 bits"))
			return 0
		}
		n += uint64(b) << shift
		if b < 128 {
			return n
		}
	}
}

func (d *decoder) text() []byte { return d.take(d.varint()) }

func (d *decoder) value() Value {
	head := d.byte()
	v := Value{Kind: Kind(head & 0x0f)}
	switch v.Kind {
	case Null:
	case Bool:
		v.number = uint64(head >> 4 & 1)
	case Int32, Uint32, Int64, Uint64:
		v.number = d.varint()
	case IPv4:
		v.bytes = d.take(4)
	case IPv6:
		v.bytes = d.take(16)
	case String, Binary:
		v.bytes = d.text()
	default:
		d.fail(fmt.Errorf("there is no type %d of values", v.Kind))
	}
	return v
}

// pairs reads names and values to the end of the payload.
func (d *decoder) pairs() map[string]Value {
	found := map[string]Value{}
	for len(d.rest) > 0 {
		name := string(d.text())
		value := d.value()
		if d.err == nil {
			found[name] = value
		}
	}
	return found
}

// messages reads the messages of a NOTIFY frame, into memory that may be reused.
func (d *decoder) messages(into []Message) []Message {
	into = into[:0]
	for len(d.rest) > 0 {
		if len(into) == maxMessages {
			d.fail(fmt.Errorf("the frame has more than %d messages", maxMessages))
			break
		}
		name, n := d.text(), int(d.byte())
		var args []Argument
		if len(into) < cap(into) {
			args = into[:len(into)+1][len(into)].Args[:0]
		}
		for ; n > 0 && d.err == nil; n-- {
			args = append(args, Argument{d.text(), d.value()})
		}
		into = append(into, Message{name, args})
	}
	return into
}

// A frame is a frame without its length.
type frame struct {
	kind           byte
	flags          uint32
	stream, number uint64
	payload        []byte
}

// minFrame is the length of an empty frame.
const minFrame = 1 + 4 + 1 + 1

// decodeFrame reads a frame after its length.
func decodeFrame(data []byte) (frame, error) {
	d := decoder{rest: data}
	f := frame{kind: d.byte()}
	if flags := d.take(4); flags != nil {
		f.flags = binary.BigEndian.Uint32(flags)
	}
	f.stream, f.number = d.varint(), d.varint()
	f.payload = d.rest
	return f, d.err
}

// appendFrame begins a frame; endFrame writes its length.
func appendFrame(out []byte, kind byte, stream, number uint64) []byte {
	out = append(out, 0, 0, 0, 0, kind, 0, 0, 0, flagFin)
	return appendVarint(appendVarint(out, stream), number)
}

func endFrame(out []byte) []byte {
	binary.BigEndian.PutUint32(out, uint32(len(out)-4)) //nolint:gosec // our own frames are short
	return out
}

func appendVarint(out []byte, n uint64) []byte {
	if n < 240 {
		return append(out, byte(n))
	}
	out = append(out, byte(n)|240)
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		out = append(out, byte(n)|128)
	}
	return append(out, byte(n))
}

func appendText(out []byte, s string) []byte {
	return append(appendVarint(out, uint64(len(s))), s...)
}

func appendValue(out []byte, v Value) []byte {
	switch v.Kind {
	case Bool:
		return append(out, byte(v.Kind)|byte(v.number&1)<<4)
	case Int32, Uint32, Int64, Uint64:
		return appendVarint(append(out, byte(v.Kind)), v.number)
	case IPv4, IPv6:
		return append(append(out, byte(v.Kind)), v.bytes...)
	case String, Binary:
		return append(appendVarint(append(out, byte(v.Kind)), uint64(len(v.bytes))), v.bytes...)
	}
	return append(out, byte(Null))
}

// A Variable is a variable to set, in the scope txn. HAProxy puts the prefix of its configuration before the
// name.
type Variable struct {
	Name  string
	Value Value
}

// appendAck writes an ACK frame that sets variables.
func appendAck(out []byte, stream, number uint64, variables []Variable) []byte {
	const setVar, arguments, scopeTransaction = 1, 3, 2
	out = appendFrame(out, typeAck, stream, number)
	for _, v := range variables {
		out = append(out, setVar, arguments, scopeTransaction)
		out = appendValue(appendText(out, v.Name), v.Value)
	}
	return endFrame(out)
}
