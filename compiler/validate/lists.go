package validate

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// HAProxy takes some 2 ms to read a certificate and its key, and to see whether they belong together: for a thousand
// of them several times as long as for the configuration. When a draft is checked, they all are the few that we
// made, so that each of these is read once, however many Secrets it stands for. HAProxy still looks at each line of each
// crt-list, with all of its options and names.

// listForm matches a line of a crt-list that HAProxy reads as we do: a file with nothing unusual in its name, options in
// brackets or none, and the rest. The options are about who connects to these names. Others, such as ocsp-update, are about the
// certificate, and HAProxy wants them to be the same wherever it is named: such a line names its own.
var listForm = regexp.MustCompile(`^(/[A-Za-z0-9._/-]+)((?: \[(?:` + ofClients + `)(?: (?:` + ofClients + `))*\])?)((?: [^[].*)?)$`)

const ofClients = `(?:alpn|ca-file|ca-verify-file|ciphers|ciphersuites|crl-file|curves|ecdhe|npn|ssl-max-ver|ssl-min-ver|verify) [A-Za-z0-9@!+=:,._/-]+|allow-0rtt|no-ca-names`

// plainNames matches names of servers about which HAProxy has nothing to say.
var plainNames = regexp.MustCompile(`^(?: (?:\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*)+$`)

// shareCertificates returns the files of a bound configuration with crt-lists whose lines name the first of the
// certificates with the same content. With onePerText there is one line of those that have the same certificate and options, and
// nothing but plain names; the others are empty. All lines keep their numbers.
//
// A certificate that is named in another way, in the configuration or in a file beside it, is not shared: HAProxy 3.2 and
// later compare the options of a certificate in all places.
func shareCertificates(b bind.Bound, onePerText bool) []bind.File {
	certificates := map[string]bool{} // by name
	for _, f := range b.Files {
		if f.Kind == bind.CertificateFile {
			certificates[f.Name] = true
		}
	}
	alone := map[string]bool{}
	named(b.Config, certificates, alone)
	for _, f := range b.Files {
		if f.Kind != bind.GeneralFile {
			continue
		}
		for line := range bytes.Lines(f.Content) {
			if !isList(f) || !listForm.Match(bytes.TrimSuffix(line, []byte("\n"))) {
				named(line, certificates, alone)
			}
		}
	}
	first, same := map[string]string{}, map[string]string{} // the path by content, and by another path
	for _, f := range b.Files {
		if f.Kind != bind.CertificateFile || alone[f.Name] {
			continue
		}
		path, known := first[string(f.Content)]
		if !known {
			path = f.Path
			first[string(f.Content)] = path
		}
		same[f.Path] = path
	}
	out := slices.Clone(b.Files)
	for i, f := range out {
		if isList(f) {
			out[i].Content = shareInList(f.Content, same, onePerText)
		}
	}
	return out
}

func isList(f bind.File) bool { return strings.HasSuffix(f.Source, ".crtlist") }

// named adds the certificates whose names stand in a text.
func named(text []byte, certificates, to map[string]bool) {
	for {
		at := bytes.Index(text, []byte(certificateSuffix))
		if at < 0 {
			return
		}
		at += len(certificateSuffix)
		name := text[bytes.LastIndexFunc(text[:at], func(r rune) bool { return !strings.ContainsRune(inNames, r) })+1 : at]
		if certificates[string(name)] {
			to[string(name)] = true
		}
		text = text[at:]
	}
}

// The names of certificates have this suffix, and consist of these characters.
const (
	certificateSuffix = ".pem"
	inNames           = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
)

func shareInList(list []byte, same map[string]string, onePerText bool) []byte {
	type text struct{ certificate, options string }
	known := map[text]bool{}
	lines := bytes.Split(list, []byte("\n"))
	for i, line := range lines {
		m := listForm.FindSubmatch(line)
		if m == nil {
			continue
		}
		shared, ok := same[string(m[1])]
		if !ok {
			continue
		}
		key := text{shared, string(m[2])}
		if onePerText && known[key] && plainNames.Match(m[3]) {
			lines[i] = nil
			continue
		}
		known[key] = true
		lines[i] = slices.Concat([]byte(shared), m[2], m[3])
	}
	return bytes.Join(lines, []byte("\n"))
}
