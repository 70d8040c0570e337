package gitstore

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/snapshots"
)

// subjectLength is how many characters of a subject every git tool shows.
const subjectLength = 72

// snapshotMessage is the message of a snapshot's commit: a subject that says
// what changed, and trailers for machines.
func snapshotMessage(name string, m snapshots.Manifest) string {
	subject := printable(fmt.Sprintf("%s r%d: %s", name, m.Spec.Revision, m.Spec.Subject))
	trailers := trailers{
		{"Hapsnap-Snapshot", m.Metadata.Name},
		{"Hapsnap-Parent", m.Spec.Parent.String()},
		{"Hapsnap-Digest", string(m.Spec.Digest)},
		{"Hapsnap-Compiler", m.Provenance.CompilerVersion},
		{"Hapsnap-Trigger", m.Provenance.Trigger},
		{"Hapsnap-Author", m.Provenance.Author},
		{"HAProxy-Version", m.Provenance.HAProxyVersion},
	}
	return message(strings.TrimSuffix(subject, ":"), trailers)
}

// channelMessage is the message of a commit that changes the channel.
func channelMessage(name, subject string) string {
	return message(strings.TrimSuffix(printable(name+" channel: "+subject), ":"), nil)
}

type trailers [][2]string

// message joins subject and trailers. A subject that is too long is cut between
// words where it can be, and repeated whole in the body.
func message(subject string, t trailers) string {
	var b strings.Builder
	fmt.Fprintln(&b, shorten(subject))
	if shorten(subject) != subject {
		fmt.Fprintf(&b, "\n%s\n", subject)
	}
	separator := "\n"
	for _, trailer := range t {
		if value := printable(trailer[1]); value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", separator, trailer[0], value)
			separator = ""
		}
	}
	return b.String()
}

// shorten cuts a line to the length of a subject.
func shorten(line string) string {
	const ellipsis = "…"
	if utf8.RuneCountInString(line) <= subjectLength {
		return line
	}
	cut := string([]rune(line)[:subjectLength-1])
	if space := strings.LastIndexByte(cut, ' '); space > len(cut)/2 {
		cut = cut[:space]
	}
	return cut + ellipsis
}

// printable makes one line of s: control and formatting characters, with which
// a name could forge a trailer or hide what it says, become spaces.
func printable(s string) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(clean), " ")
}
