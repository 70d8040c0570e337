package push

import (
	"errors"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// ErrInstance is the error of an instance that cannot take a snapshot for a fault of its
// own: HAProxy does not find a file there that was uploaded, may not do something, or lacks
// descriptors, memory or disk. Another instance may take it, so that it says nothing about
// the snapshot. [ErrDirectory] is another one.
var ErrInstance = errors.New("the instance is at fault")

// instanceError is an [ErrInstance] with what to look at.
type instanceError struct {
	cause error
	hint  string
}

func (e *instanceError) Error() string {
	return ErrInstance.Error() + ": " + e.cause.Error() + "; " + e.hint
}
func (e *instanceError) Is(target error) bool { return target == ErrInstance }

// faults are what HAProxy and the API say where the instance is at fault, and what to look
// at. One of them is enough: a file that is missing makes other lines wrong.
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

// bindFault is a port that could not be opened, with the section that wants it.
var (
	bindFault   = regexp.MustCompile(`(?i)cannot (bind|listen to|create receiving) .*socket|address already in use|cannot assign requested address`)
	bindSection = regexp.MustCompile(`(?i)(?:binding|starting) .*?(?:frontend|listen|proxy|backend) (\S+?):`)
)

// instanceFault judges what was said when a configuration was refused: whether the
// instance is at fault, and what to look at. A port that cannot be opened is the fault of
// the instance where what ran before had it open by the same lines, and else of the
// configuration that asks for it.
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

// sameBinds reports whether all binds of a section stood there before.
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

// binds returns the bind lines of a section, whatever blanks, quotes and comments they have.
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

// The bounds of what is kept of a message, in bytes: of one in which nothing stands out,
// and of what HAProxy says was wrong.
const (
	maxGist = 400
	maxSaid = 2000
)

// alert is a line of HAProxy that says why it did not start, and finding one of
// those that the API quotes when HAProxy refused a configuration.
var (
	alert   = regexp.MustCompile(`\[ALERT\]\s*(?:\(\d+\))?\s*:\s*(?:config : )?(.*)`)
	finding = regexp.MustCompile(`msg="((?:[^"\\]|\\.)*)"`)
	// noise is what HAProxy also says as an alert when something else went wrong, when its
	// processes part, or of what it merely warns of.
	noise = regexp.MustCompile(`(?i)error\(s\) found in|fatal errors found in|failed to start their listeners|cannot transfer the fd|` +
		`sockpair|exit-on-failure|current worker .*exited|former worker .*exited|all workers exited|process exited with code|loading failure|failed to load worker|don't mix both usage`)
)

// Gist returns what a person needs to know of an error, on one line: of the many
// that HAProxy writes when it does not start, those that say why.
func Gist(err error) string {
	text := err.Error()
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

// findings returns the lines of HAProxy that say why, of all that it wrote.
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

// shortened returns the text, of no more than so many bytes.
func shortened(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
