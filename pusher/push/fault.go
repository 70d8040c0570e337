package push

import (
	"errors"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// ErrInstance is the error of an instance that cannot take a snapshot for a reason of its
// own: HAProxy does not find a file that was uploaded, lacks a permission, or lacks
// descriptors, memory or disk. Another instance may take the snapshot, so this says nothing
// about it. [ErrDirectory] is another such error.
var ErrInstance = errors.New("the instance is at fault")

// instanceError is an [ErrInstance] with a hint what to look at.
type instanceError struct {
	cause error
	hint  string
}

func (e *instanceError) Error() string {
	return ErrInstance.Error() + ": " + e.cause.Error() + "; " + e.hint
}
func (e *instanceError) Is(target error) bool { return target == ErrInstance }

// faults are messages of HAProxy and the API that mean a fault of the instance, with a hint
// what to look at. One of them is enough, since a missing file causes errors in other lines
// too.
var faults = []struct {
	said *regexp.Regexp
	hint string
}{
	{
		regexp.MustCompile(`(?i)failed to open pattern file|unable to stat SSL certificate|couldn't open the \S+ '|'\S+' : unable to load /|error opening file|cannot open (file )?['/]|no such file or directory`),
		"HAProxy does not find a file there: compare directories in the Fleet with the folders of the Dataplane API, and see that HAProxy has the same",
	},
	{
		regexp.MustCompile(`(?i)cannot raise fd limit|not enough fds?\b|too many open files|fd limit .* too low|limit is \d+\. please raise 'ulimit-n'`),
		"raise the limit of open files of HAProxy there, such as LimitNOFILE",
	},
	{
		regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|read-only file system`),
		"make room on its disk",
	},
	{
		regexp.MustCompile(`(?i)cannot allocate memory|out of memory|signal: killed|exit status 137`),
		"give it more memory",
	},
	{
		regexp.MustCompile(`(?i)fork/exec|executable file not found`),
		"the Dataplane API cannot run haproxy there: see haproxy_bin in its configuration",
	},
	{
		regexp.MustCompile(`(?i)cannot chroot|cannot find (user|group) id|cannot set [ug]id|unable to set [ug]id`),
		"see that user, group and chroot of the configuration exist there",
	},
	{
		regexp.MustCompile(`(?i)permission denied|operation not permitted`),
		"HAProxy may not do it there: see its user, the owners of files, and its capabilities",
	},
}

// bindFault is a port that could not be opened, with the section that opens it.
var (
	bindFault   = regexp.MustCompile(`(?i)cannot (bind|listen to|create receiving) .*socket|address already in use|cannot assign requested address`)
	bindSection = regexp.MustCompile(`(?i)(?:binding|starting) .*?(?:frontend|listen|proxy|backend) (\S+?):`)
)

// instanceFault decides from the messages of a refused configuration whether the instance
// is at fault, and what to look at. A port that cannot be opened is the fault of the
// instance if the previous configuration opened it with the same lines, otherwise of the
// new configuration.
func instanceFault(said, want, before string) (hint string, ok bool) {
	lines := findings(said)
	if len(lines) == 0 {
		lines = []string{said}
	}
	for _, line := range lines {
		if bindFault.MatchString(line) {
			if section := bindSection.FindStringSubmatch(line); section != nil && sameBinds(section[1], want, before) {
				return "HAProxy had this port open before: another process may have it there, or HAProxy may not open it any more", true
			}
			continue // also if it is a matter of permission
		}
		for _, f := range faults {
			if f.said.MatchString(line) {
				return f.hint, true
			}
		}
	}
	return "", false
}

// sameBinds reports whether the previous configuration had all binds of a section.
func sameBinds(section, want, before string) bool {
	had := map[string]bool{}
	for _, line := range binds(section, before) {
		had[line] = true
	}
	lines := binds(section, want)
	for _, line := range lines {
		if !had[line] {
			return false
		}
	}
	return len(lines) > 0
}

// binds returns the bind lines of a section, with normalised blanks and quotes and without
// comments.
func binds(section, config string) []string {
	var out []string
	for s := range haproxycfg.Sections([]byte(config)) {
		for _, line := range s.Lines {
			if s.Keyword != "" && s.Name == section && line.Is("bind") {
				out = append(out, strings.Join(line.Texts(), " "))
			}
		}
	}
	return out
}

// The lengths in bytes to which messages are cut: a message in which no line stands out,
// and what HAProxy said was wrong.
const (
	maxGist = 400
	maxSaid = 2000
)

// alert matches a line in which HAProxy says why it did not start, and finding one that the
// API quotes when HAProxy refused a configuration.
var (
	alert   = regexp.MustCompile(`\[ALERT\]\s*(?:\(\d+\))?\s*:\s*(?:config : )?(.*)`)
	finding = regexp.MustCompile(`msg="((?:[^"\\]|\\.)*)"`)
	// noise matches alerts that are consequences of another error, that HAProxy's processes
	// write when they end, or that are warnings.
	noise = regexp.MustCompile(`(?i)error\(s\) found in|fatal errors found in|failed to start their listeners|cannot transfer the fd|` +
		`sockpair|exit-on-failure|current worker .*exited|former worker .*exited|all workers exited|process exited with code|loading failure|failed to load worker|don't mix both usage`)
)

// Gist returns the part of an error that a person needs, on one line. Of the many lines
// that HAProxy writes when it does not start, these are the ones that say why.
func Gist(err error) string {
	text := err.Error()
	if known, ok := err.(interface{ Gist() string }); ok { // of an event log
		return known.Gist()
	}
	said, prefix, hint := findings(text), ErrRefused.Error(), ""
	if fault, ok := errors.AsType[*instanceError](err); ok {
		said, prefix, hint = findings(fault.cause.Error()), ErrInstance.Error(), "; "+fault.hint
	}
	if len(said) > 0 {
		return shortened(prefix+": "+strings.Join(said, "; "), maxSaid) + hint
	}
	if hint == "" && (alert.MatchString(text) || finding.MatchString(text)) {
		return prefix + ": HAProxy did not start with it, and did not say why"
	}
	return shortened(strings.Join(strings.Fields(text), " "), maxGist) // with the hint
}

// findings returns the lines of HAProxy's output that say why it did not start.
func findings(text string) []string {
	var said []string
	for _, form := range []*regexp.Regexp{alert, finding} {
		for _, match := range form.FindAllStringSubmatch(text, -1) {
			if line := strings.TrimSpace(match[1]); line != "" && !noise.MatchString(line) {
				said = append(said, strings.ReplaceAll(line, `\"`, `"`))
			}
		}
	}
	return said
}

// shortened cuts the text to a number of bytes.
func shortened(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
