package bind

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// fileBinder holds the files of a snapshot as an instance gets them.
type fileBinder struct {
	binder *Binder
	layout Layout
	files  []File
	// paths gives the absolute path of each file and certificate.
	paths map[string]string
	// missing are the certificates without usable content, by file.
	missing map[string]Need
	// standIns hold the fallback certificate under the names of missing ones, where HAProxy or a crt-list needs
	// a file.
	standIns map[string]File
	// expired are the certificates that are not served any more, see expiredFiles.
	expired map[string]bool
	// absent are the paths of certificates whose version is not in the live data.
	absent []string
	// fallen are the files that the fallback certificate has replaced.
	fallen []Need
}

// bindFiles places all files of the snapshot except haproxy.cfg. Crt-lists come last, since they name the
// others.
func (b *Binder) bindFiles(s snapshots.Snapshot, live Live, layout Layout) (*fileBinder, error) {
	out := &fileBinder{
		binder: b, layout: layout, paths: map[string]string{},
		missing: map[string]Need{}, standIns: map[string]File{},
	}
	lists := slices.DeleteFunc(slices.Clone(s.Files), func(f snapshots.File) bool { return !isList(f) })
	out.expired = b.expiredFiles(s.Manifest.Spec.Certificates, lists, live)
	for _, ref := range s.Manifest.Spec.Certificates {
		if err := out.addCertificate(ref, live); err != nil {
			return nil, err
		}
	}
	for _, f := range s.Files {
		if err := snapshots.CheckPath(f.Path); err != nil {
			return nil, err
		}
		if !isList(f) && f.Path != snapshots.ConfigFile && f.Path != snapshots.EndpointsFile && !snapshots.IsSealed(f.Path) {
			out.add(out.placed(fileKind(f.Path), f.Path, f.Content))
		}
	}
	for _, f := range lists {
		content, err := out.rewriteList(f.Content)
		if err != nil {
			return nil, fmt.Errorf("%s:%w", f.Path, err)
		}
		out.add(out.placed(GeneralFile, f.Path, content))
	}
	return out, nil
}

func isList(f snapshots.File) bool { return strings.HasSuffix(f.Path, ".crtlist") }

func fileKind(source string) FileKind {
	if strings.HasPrefix(source, snapshots.MapsFolder) {
		return MapFile
	}
	return GeneralFile
}

// placed returns the file in the storage for its kind. A certificate keeps its name; the names of other files
// are derived from their content.
func (b *fileBinder) placed(kind FileKind, source string, content []byte) File {
	f := File{Kind: kind, Name: path.Base(source), Source: source, Content: content}
	dir := b.layout.Certificates
	if kind != CertificateFile {
		f.Name, dir = hashedName(f.Name, content), b.layout.General
	}
	if kind == MapFile {
		dir = b.layout.Maps
	}
	f.Path = path.Join(dir, f.Name)
	return f
}

func (b *fileBinder) add(f File) {
	b.paths[f.Source] = f.Path
	b.files = append(b.files, f)
}

// addCertificate joins a certificate with the live data.
func (b *fileBinder) addCertificate(ref snapshots.CertificateRef, live Live) error {
	if err := ref.Check(); err != nil {
		return err
	}
	if _, twice := b.paths[ref.File]; twice {
		return fmt.Errorf("certificate %s is listed twice", ref.File)
	}
	if (ref.Secret == snapshots.SecretName{}) {
		fallback, err := b.binder.certificateKind(live.Fallback)
		if err != nil {
			return fmt.Errorf("use the fallback certificate as %s: %w", ref.File, err)
		}
		b.add(b.placed(fallback, ref.File, live.Fallback))
		return nil
	}
	if ref.Version != "" && len(live.Versions[ref.Version]) == 0 {
		path := b.placed(CertificateFile, ref.File, nil).Path
		b.paths[ref.File], b.absent = path, append(b.absent, path)
		return nil
	}
	content, kind, err := b.secretFile(ref, live)
	if alone, expired := b.expired[ref.File]; expired {
		content, kind, err = nil, "", errExpired
		if alone {
			content, b.fallen = live.Fallback, append(b.fallen, Need{Use: ref.Use, Secret: ref.Secret})
			kind, err = b.binder.certificateKind(content)
		}
	}
	if err == nil {
		b.add(b.placed(kind, ref.File, content))
		return nil
	}
	b.keepStandIn(ref, live.Fallback)
	if f, ok := b.standIns[ref.File]; ok && ref.Use == snapshots.UseCertificate && live.Unread[ref.Secret] && len(live.certificate(ref)) == 0 {
		f.Held = true
		b.add(f)
		b.fallen = append(b.fallen, Need{Use: ref.Use, Secret: ref.Secret})
		return nil
	}
	b.missing[ref.File] = Need{Use: ref.Use, Secret: ref.Secret}
	b.paths[ref.File] = ""
	return nil
}

// secretFile returns the content of a reference to a Secret. Authorities are general files, since HAProxy does
// not load new ones without a reload: their name carries a hash of their content.
func (b *fileBinder) secretFile(ref snapshots.CertificateRef, live Live) ([]byte, FileKind, error) {
	if ref.Use == snapshots.UseCA {
		content := live.Authorities[ref.Secret]
		return content, GeneralFile, b.binder.checkAuthorities(content)
	}
	content := live.certificate(ref)
	kind, err := b.binder.certificateKind(content)
	return content, kind, err
}

// certificate returns the certificate that a reference names.
func (l Live) certificate(ref snapshots.CertificateRef) []byte {
	if ref.Versioned() {
		return l.Versions[ref.Version]
	}
	return l.Certificates[ref.Secret]
}

// expired reports whether the certificate of a reference must not be served any more.
func (l Live) expired(ref snapshots.CertificateRef) bool {
	if ref.Versioned() {
		return l.ExpiredVersions[ref.Version]
	}
	return l.Expired[ref.Secret]
}

// keepStandIn keeps the fallback certificate for a missing file. For authorities it leaves out the key.
func (b *fileBinder) keepStandIn(ref snapshots.CertificateRef, fallback []byte) {
	kind, err := b.binder.certificateKind(fallback)
	if err == nil && ref.Use == snapshots.UseCA {
		kind = GeneralFile
		fallback, err = pem.ParseAuthorities(fallback)
	}
	if err == nil {
		b.standIns[ref.File] = b.placed(kind, ref.File, fallback)
	}
}

// rewriteConfigLine is appendRewritten for a line of haproxy.cfg. If the line names a missing certificate, the
// fallback certificate stands in for it, since HAProxy would not start without the file. The path of a map that
// is only text, such as the value of a header, stays as it is.
func (b *fileBinder) rewriteConfigLine(out, line []byte) ([]byte, error) {
	if err := b.standInAll(line); err != nil {
		return nil, err
	}
	if !bytes.Contains(line, []byte(snapshots.MapsFolder)) {
		return b.appendRewritten(out, line), nil
	}
	done := 0
	for token, use := range mapUses(line) {
		if use == mapText {
			out = append(b.appendRewritten(out, line[done:token[0]]), line[token[0]:token[1]]...)
			done = token[1]
		}
	}
	return b.appendRewritten(out, line[done:]), nil
}

// standInAll replaces all missing certificates that the line names by the fallback certificate.
func (b *fileBinder) standInAll(line []byte) error {
	if len(b.missing) == 0 {
		return nil
	}
	for token := range tokens(line) {
		if err := b.standIn(string(line[token[0]:token[1]])); err != nil {
			return err
		}
	}
	return nil
}

func (b *fileBinder) standIn(file string) error {
	need, ok := b.missing[file]
	if !ok || b.paths[file] != "" {
		return nil
	}
	f, ok := b.standIns[file]
	if !ok {
		return fmt.Errorf("%s is for the %s, which is missing, and there is no fallback certificate", file, need)
	}
	b.add(f)
	return nil
}

// appendRewritten appends the line with each token that is the path of a file
// replaced by the absolute one.
func (b *fileBinder) appendRewritten(out, line []byte) []byte {
	done := 0
	for token := range tokens(line) {
		if absolute := b.paths[string(line[token[0]:token[1]])]; absolute != "" {
			out = append(append(out, line[done:token[0]]...), absolute...)
			done = token[1]
		}
	}
	return append(out, line[done:]...)
}

// isTokenByte reports whether a path in a configuration may contain a byte. A path ends at any other byte.
var isTokenByte = func() (is [256]bool) {
	for c := range is {
		is[c] = '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' ||
			strings.ContainsRune("._/-", rune(c))
	}
	return is
}()

// tokens yields the start and end of each run of path bytes that holds a slash.
func tokens(line []byte) func(yield func([2]int) bool) {
	return func(yield func([2]int) bool) {
		for from := 0; ; {
			slash := bytes.IndexByte(line[from:], '/')
			if slash < 0 {
				return
			}
			start, end := from+slash, from+slash
			for start > from && isTokenByte[line[start-1]] {
				start--
			}
			for end < len(line) && isTokenByte[line[end]] {
				end++
			}
			if !yield([2]int{start, end}) {
				return
			}
			from = end
		}
	}
}

// sorted returns the files by path, or an error if two would be one file.
func (b *fileBinder) sorted() ([]File, error) {
	slices.SortFunc(b.files, func(a, c File) int { return cmp.Compare(a.Path, c.Path) })
	for i := 1; i < len(b.files); i++ {
		if b.files[i-1].Path == b.files[i].Path {
			return nil, fmt.Errorf("%s and %s would both be %s", b.files[i-1].Source, b.files[i].Source, b.files[i].Path)
		}
	}
	return b.files, nil
}

// hashedName puts the first 8 hexadecimal digits of the content's sha256 into a
// checked file name: "host.map" becomes "host-3f2a91c4.map".
func hashedName(name string, content []byte) string {
	sum := sha256.Sum256(content)
	stem, ext, _ := strings.Cut(name, ".")
	return stem + "-" + hex.EncodeToString(sum[:4]) + "." + ext
}

// rewriteList returns a crt-list with absolute paths. It leaves out a line whose certificate is missing, so
// that its hosts get the default certificate. It keeps the line if it asks for client certificates: its hosts
// would otherwise be open to everybody. If other lines of the same hosts ask too, the line goes, since its
// hosts would get the fallback certificate although they have another.
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

// cutListLine returns the certificate of a line of a crt-list and the rest of the line, or nothing for a
// comment. Crt-lists know neither quotes nor escapes.
func cutListLine(line []byte) (file, rest []byte) {
	line = bytes.TrimLeft(line, haproxycfg.Blanks)
	end := bytes.IndexAny(line, haproxycfg.Blanks+"#")
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

// clientOptions are the words of a crt-list that say which client certificates HAProxy asks for.
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

// hostsOf returns the hosts on those lines of a crt-list that count.
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

// hostsOn returns the hosts that follow the certificate of a line, without those that a wildcard excludes.
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

// all reports whether there are hosts and a set has all of them.
func all(hosts []string, set map[string]bool) bool {
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(host string) bool { return !set[host] })
}

var errExpired = errors.New("the certificate is expired")

// expiredFiles decides what to do about each expired certificate that a crt-list serves, by file. With true,
// the fallback certificate replaces the content of the file, which needs no reload. With false, the lines of
// the file are left out: one of its hosts has another valid certificate, and a fallback beside that could take
// clients from it. Expired certificates that no crt-list names are not served, and stay.
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
