package bind

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// rewriteList returns a crt-list with absolute paths. A line whose certificate is
// missing is left out, so that its hosts get the default certificate, unless it
// asks for client certificates: its hosts would then be open to everybody. Those
// that other lines ask for too are not, and would get the fallback certificate
// where they have another.
func (b *fileBinder) rewriteList(content []byte) ([]byte, error) {
	out := make([]byte, 0, len(content)+len(content)/4)
	var guarded map[string]bool
	if len(b.missing) > 0 {
		guarded = hostsOf(content, func(file, options []byte) bool {
			_, missing := b.missing[string(file)]
			return !missing && asksForClients(options)
		})
	}
	for l := range haproxycfg.Lines(content) {
		line := l.Text
		file, options := cutListLine(line)
		if _, missing := b.missing[string(file)]; missing && (!asksForClients(options) || all(hostsOn(options), guarded)) {
			continue
		}
		if len(file) > 0 {
			if err := b.standInAll(line); err != nil {
				return nil, fmt.Errorf("%d: %w", l.Number, err)
			}
		}
		out = append(b.appendRewritten(out, line), '\n')
	}
	return out, nil
}

// cutListLine returns the certificate of a line of a crt-list and what follows
// it; nothing for a comment. Crt-lists know neither quotes nor escapes.
func cutListLine(line []byte) (file, rest []byte) {
	line = bytes.TrimLeft(line, blanks)
	end := bytes.IndexAny(line, blanks+"#")
	switch {
	case end < 0:
		file = line
	case line[end] == '#':
		file = line[:end]
	default:
		file, rest = line[:end], line[end:]
	}
	if name, options, ok := bytes.Cut(file, []byte{'['}); ok {
		return name, append(append([]byte{'['}, options...), rest...)
	}
	return file, rest
}

// clientOptions are the words of a crt-list that say which client certificates
// are asked for.
var clientOptions = map[string]bool{
	"verify": true, "ca-file": true, "ca-verify-file": true, "crl-file": true,
}

func asksForClients(options []byte) bool {
	_, inside, _ := bytes.Cut(options, []byte{'['})
	inside, _, _ = bytes.Cut(inside, []byte{']'})
	for _, word := range bytes.Fields(inside) {
		if clientOptions[string(word)] {
			return true
		}
	}
	return false
}

// hostsOf returns the hosts on those lines of a crt-list that are counted.
func hostsOf(content []byte, counts func(file, rest []byte) bool) map[string]bool {
	out := map[string]bool{}
	for line := range haproxycfg.Lines(content) {
		file, rest := cutListLine(line.Text)
		if len(file) == 0 || !counts(file, rest) {
			continue
		}
		for _, host := range hostsOn(rest) {
			out[host] = true
		}
	}
	return out
}

// hostsOn returns the hosts that follow the certificate of a line, without those
// that a wildcard leaves out.
func hostsOn(rest []byte) []string {
	if _, after, ok := bytes.Cut(rest, []byte{']'}); ok {
		rest = after
	}
	var out []string
	for word := range bytes.FieldsSeq(rest) {
		if word[0] == '#' {
			break
		}
		if word[0] != '!' {
			out = append(out, string(word))
		}
	}
	return out
}

// all reports whether there are hosts, and all of them are in a set.
func all(hosts []string, set map[string]bool) bool {
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(host string) bool { return !set[host] })
}

var errExpired = errors.New("the certificate is expired")

// expiredFiles says what becomes of the expired certificates that a crt-list
// serves, by file. True: the fallback certificate takes the place of the file,
// which needs no reload. False: a host of it has another certificate that is
// valid, which a fallback beside it could take clients from, so that the file's
// lines are left out. Those that no crt-list names are not served, and stay.
func (b *Binder) expiredFiles(refs []snapshots.CertificateRef, lists []snapshots.File, live Live) map[string]bool {
	if len(live.Expired)+len(live.ExpiredVersions) == 0 {
		return nil
	}
	expired, valid := map[string]bool{}, map[string]bool{}
	for _, ref := range refs {
		if _, err := b.certificateKind(live.certificate(ref)); err == nil && ref.Use == snapshots.UseCertificate {
			expired[ref.File], valid[ref.File] = live.expired(ref), !live.expired(ref)
		}
	}
	out := map[string]bool{}
	for _, list := range lists {
		served := hostsOf(list.Content, func(file, _ []byte) bool { return valid[string(file)] })
		for line := range haproxycfg.Lines(list.Content) {
			file, rest := cutListLine(line.Text)
			if !expired[string(file)] {
				continue
			}
			alone, known := out[string(file)]
			shared := slices.ContainsFunc(hostsOn(rest), func(host string) bool { return served[host] })
			out[string(file)] = (alone || !known) && !shared
		}
	}
	return out
}
