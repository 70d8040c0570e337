package validate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/scratch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The oldest HAProxy that the shipped templates and the Dataplane API work with.
const (
	leastMajor = 2
	leastMinor = 6
)

// ErrNoHAProxy means that HAProxy cannot be found or run.
var ErrNoHAProxy = errors.New("there is no haproxy to check configurations with")

// folders are those in which distributions install HAProxy, and which are not in the PATH of an ordinary user.
var folders = []string{"/usr/sbin", "/usr/local/sbin"}

// stagingPrefix begins the names of the folders in which configurations are checked, with
// the private keys that go with them. SandboxPrefix is that of package sandbox.
const (
	stagingPrefix = "hapsnap-validate-"
	SandboxPrefix = "hapsnap-trial-"
)

// sweepOnce removes the folders of processes that were killed.
var sweepOnce = sync.OnceFunc(func() {
	scratch.Sweep(os.TempDir(), stagingPrefix, SandboxPrefix)
	scratch.Sweep("/tmp", SandboxPrefix) // where one goes if its name would be too long
})

// Checker checks with one HAProxy. It may be used by several goroutines.
type Checker struct {
	Path    string // of the executable
	Version string // such as "2.6.12-1+deb12u4"
	// Patience is how long one check may take; 0 is ten minutes.
	Patience time.Duration

	keys   keyRing
	trips  roundTrips
	binder bind.Binder

	stagings stagings
	accepted verdictMemo // see accepted.go
	short    shortForm
	sound    verdictMemo // see [Checker.checkLines]
	slowly   atomic.Bool // quickStart is not for this HAProxy
}

// Find finds the executable by its name or path and asks for its version. The
// error wraps [ErrNoHAProxy], or says that the version is too old; both carry
// a hint.
func Find(ctx context.Context, name string) (*Checker, error) {
	path, err := lookUp(name)
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("%w: %w", ErrNoHAProxy, err), "install HAProxy 2.6 or later, or name it with --haproxy")
	}
	out, err := exec.CommandContext(ctx, path, "-v").Output()
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("%w: run %s -v: %w", ErrNoHAProxy, path, err), "name another with --haproxy")
	}
	version, err := parseVersion(out)
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("%s: %w", path, err), "install HAProxy 2.6 or later, or name it with --haproxy")
	}
	sweepOnce()
	return &Checker{Path: path, Version: version}, nil
}

func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || strings.Contains(name, "/") {
		return path, err
	}
	for _, folder := range folders {
		if path, lookErr := exec.LookPath(filepath.Join(folder, name)); lookErr == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", name)
}

var versionForm = regexp.MustCompile(`^HA-?Proxy version ((\d+)\.(\d+)\S*)`)

// parseVersion reads what haproxy -v says.
func parseVersion(out []byte) (string, error) {
	line, _, _ := bytes.Cut(out, []byte("\n"))
	m := versionForm.FindSubmatch(line)
	if m == nil {
		return "", fmt.Errorf("is not HAProxy: it calls itself %q", line)
	}
	major, _ := strconv.Atoi(string(m[2]))
	minor, _ := strconv.Atoi(string(m[3]))
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return "", fmt.Errorf("HAProxy %s is too old: %d.%d is the oldest that is supported", m[1], leastMajor, leastMinor)
	}
	return string(m[1]), nil
}

// stagedConfig is the name of the bound configuration in the staging directory.
const stagedConfig = snapshots.ConfigFile

// LayoutIn returns directories below dir, as an instance has them.
func LayoutIn(dir string) bind.Layout {
	return bind.Layout{
		Maps: filepath.Join(dir, "maps"), Certificates: filepath.Join(dir, "certs"), General: filepath.Join(dir, "general"),
	}
}

// askedOf returns what HAProxy is asked about: a bound configuration, or with short one backend of each text of it.
func askedOf(bound bind.Bound, short bool) bind.Bound {
	if short {
		bound.Config = onePerText(bound.Config)
	}
	bound.Files = shareCertificates(bound, short)
	return bound
}

// ask has HAProxy check a bound configuration: what [askedOf] returns for that of lines. It runs in the staging directory, so
// that messages name the file without its folder. Silent says that it accepted all that it was asked about, and did not
// warn; refused, that it would not start.
func (c *Checker) ask(ctx context.Context, in *staging, lines lineMap, asked bind.Bound) (v Verdict, silent, refused bool, err error) {
	if err := in.stage(asked); err != nil {
		return Verdict{}, false, false, err
	}
	said, err := c.check(ctx, in.Path, asked.Config)
	if err != nil {
		return Verdict{}, false, false, err
	}
	v = lines.verdict(parseOutput(said.stderr, lines.has))
	silent = said.exit == 0 && len(v.Faults)+len(v.Warnings) == 0
	switch {
	case said.exit == 0:
		v.Faults = nil // HAProxy starts in spite of the alert
	case said.exit == nothingListens:
		v.Faults = append(v.Faults, render.Fault{
			Message: "haproxy would not start: nothing listens",
			Hint:    "a template must write a frontend with a bind line",
		})
	case len(v.Faults) == 0:
		v.Faults = []render.Fault{{Message: "haproxy refuses the configuration: " + tail(said.stderr+said.stdout)}}
	}
	v.Faults = lines.places.spread(v.Faults)
	return v, silent, said.exit != 0, nil
}

// quickStart is a configuration that HAProxy reads before the one that it checks. At each start HAProxy loads the system's
// certificate authorities, for HTTPS requests of scripts (httpclient). That takes half of the time of checking a small
// configuration, and checks nothing. A configuration that sets anything of httpclient is checked without this file.
const (
	quickStartFile = "quick-start.cfg"
	quickStart     = "global\n.if feature(OPENSSL)\n    httpclient.ssl.verify none\n.endif\n"
)

// output is what haproxy -c wrote, and its exit code.
type output struct {
	stdout, stderr string
	exit           int
}

// patience is how long one check may take. HAProxy reads 100,000 Ingresses in ten seconds, and 15,000 certificates in
// thirty. A HAProxy that hangs would otherwise stop all publishing until somebody ends it.
const patience = 10 * time.Minute

// ErrSilent means that HAProxy did not end, and was killed.
var ErrSilent = errors.New("HAProxy has not ended, and was killed")

// ErrKilled means that somebody killed HAProxy. Most often it is the system, for the memory that HAProxy took.
var ErrKilled = errors.New("HAProxy was killed")

// check has HAProxy check the configuration that is staged in a folder.
func (c *Checker) check(ctx context.Context, dir string, config []byte) (output, error) {
	said, err := c.run(ctx, dir, stagedConfig, config)
	if err != nil || said.exit == 0 {
		return said, err
	}
	why, doubtful := shortage(said.stderr, config)
	if doubtful {
		// The configuration says the same words, for HAProxy to quote. Without the lines that say them, only HAProxy does.
		silenced := silence(config)
		if err := os.WriteFile(filepath.Join(dir, silencedConfig), silenced, 0o600); err != nil {
			return output{}, fmt.Errorf("stage %s: %w", silencedConfig, err)
		}
		again, err := c.run(ctx, dir, silencedConfig, silenced)
		if err != nil {
			return output{}, err
		}
		if why, _ = shortage(again.stderr, silenced); why == "" {
			if said, err = c.run(ctx, dir, stagedConfig, config); err != nil { // the shortage may have passed
				return output{}, err
			}
		}
	}
	if why != "" {
		return output{}, process.WithHint(fmt.Errorf("check with %s: %s", c.Path, why),
			"HAProxy lacks what the system should give it, which is no fault of the configuration: see the limits of memory and open files")
	}
	if said.exit != 0 && said.exit != nothingListens && !alertForm.MatchString(said.stderr) {
		return output{}, process.WithHint(fmt.Errorf("check with %s: exit status %d, and no alert: %q", c.Path, said.exit, tail(said.stderr)),
			"HAProxy says what it refuses in an alert, so this is no verdict: run it with -vv, it may lack a library")
	}
	return said, nil
}

// run has HAProxy check a configuration, which is a file in a folder, and returns what HAProxy says.
func (c *Checker) run(ctx context.Context, dir, file string, config []byte) (output, error) {
	limit := cmp.Or(c.Patience, patience)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %s", ErrSilent, limit))
	defer cancel()
	// With -V HAProxy says what it refuses even if the configuration has the setting quiet.
	args := []string{"-c", "-V", "-f", file}
	quick := !c.slowly.Load() && !bytes.Contains(config, []byte("httpclient"))
	if quick {
		if err := os.WriteFile(filepath.Join(dir, quickStartFile), []byte(quickStart), 0o600); err != nil {
			return output{}, fmt.Errorf("stage %s: %w", quickStartFile, err)
		}
		args = []string{"-c", "-V", "-f", quickStartFile, "-f", file}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Path, args...) //nolint:gosec // the user named it
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.WaitDelay = time.Second // for what it started, which has the same output
	err := cmd.Run()
	if why := context.Cause(ctx); errors.Is(why, ErrSilent) {
		return output{}, fmt.Errorf("check with %s: %w", c.Path, why)
	}
	if ctx.Err() != nil {
		return output{}, fmt.Errorf("check with haproxy: %w", ctx.Err())
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && (!failed || exit.ExitCode() < 0) {
		switch err = fmt.Errorf("check with %s: %w", c.Path, err); {
		case failed && endedBy(exit, faults...):
			err = CrashError{err}
		case failed && endedBy(exit, syscall.SIGKILL):
			err = fmt.Errorf("%w: %w", ErrKilled, err)
		}
		return output{}, err
	}
	if quick && strings.Contains(stderr.String(), quickStartFile+":") {
		c.slowly.Store(true) // a HAProxy that does not know the setting, or warns of it
		said, err := c.run(ctx, dir, file, config)
		if err == nil && strings.Contains(said.stderr, quickStartFile+":") {
			c.slowly.Store(false) // no: a tenant wrote that name, which HAProxy quotes
		}
		return said, err
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// nothingListens is the exit code of HAProxy for a configuration without a listener, of which some versions say nothing.
const nothingListens = 2

// alertForm matches what HAProxy says of each configuration that it refuses. The loader of programs, which may miss a
// library after an upgrade, and shells write something else.
var alertForm = regexp.MustCompile(`(?m)^\[ALERT\] `)

// CrashError means that HAProxy crashed: by a mistake of HAProxy that something in the configuration triggers, or since it
// does not run on this machine at all.
type CrashError struct{ error }

// Unwrap returns the error of the process.
func (e CrashError) Unwrap() error { return e.error }

// faults are the signals by which a program ends for a mistake of its own, and not because somebody killed it.
var faults = []syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP}

// endedBy reports whether a program ended by one of these signals.
func endedBy(exit *exec.ExitError, signals ...syscall.Signal) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && slices.Contains(signals, status.Signal())
}

// shortageForm matches what HAProxy 2.6 to 3.4 write if the system does not give them memory or files. They write (null) in
// place of a text that there was no memory for.
var shortageForm = regexp.MustCompile(`(?i)(?:\b(?:out of|not enough|no more|allocate|alloc) memory(?: error)?|\btoo many open files(?: in system)?|` +
	`\bno space left on device|^unable to allocate SSL session cache)[.!)]*$|^\(null\)`)

// shortage returns the line of HAProxy's output that says that the system did not give it what it needs, or "". HAProxy names
// the line of the configuration that it was reading, whose object is not to blame. What the configuration says itself is
// doubtful: a tenant may have written it, for HAProxy to quote, and would stop everybody. He may also have written it so that
// a shortage goes unnoticed, and others are blamed for it.
func shortage(stderr string, config []byte) (why string, doubtful bool) {
	said := map[string]bool{} // by the configuration; HAProxy may quote it a thousand times
	for line := range strings.Lines(stderr) {
		line = strings.TrimRight(line, "\n")
		text := line
		if m := messageForm.FindStringSubmatch(line); m != nil {
			text = m[4]
		}
		found := strings.Trim(shortageForm.FindString(text), ".!)")
		if found == "" {
			continue
		}
		if _, known := said[found]; !known {
			said[found] = says(config, found)
		}
		if !said[found] {
			return tidy(text), false
		}
		doubtful = true
	}
	return "", doubtful
}

// shortageWords are what [shortageForm] matches, in lower case.
var shortageWords = []string{
	"out of memory", "not enough memory", "no more memory", "allocate memory", "alloc memory", "too many open files", "no space left on device",
	"unable to allocate ssl session cache", "(null)",
}

// silencedConfig is the name of a configuration without the lines that [silence] leaves out.
const silencedConfig = "silenced.cfg"

// silence returns a configuration without the lines that say one of the words of a shortage, in place of which it has comments.
// Such a configuration tells what HAProxy says by itself.
func silence(config []byte) []byte {
	var out bytes.Buffer
	for line := range haproxycfg.Lines(config) {
		if saysInLine(line, shortageWords...) {
			out.WriteString("#\n")
			continue
		}
		out.Write(line.Text)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// defaultForm matches an environment variable with what HAProxy takes if it is not set.
var defaultForm = regexp.MustCompile(`\$\{[A-Za-z_.]\w*(?:\[\*\])?(?:-([^}]*))?\}`)

// says reports whether a configuration says something, in any way of writing it that HAProxy knows: with quotes, escapes, and
// variables that are not set.
func says(config []byte, what string) bool {
	what = strings.ToLower(what)
	for line := range haproxycfg.Lines(config) {
		if saysInLine(line, what) {
			return true
		}
	}
	return false
}

// unquoted removes what may stand between the letters of a text.
var unquoted = strings.NewReplacer(`\`, "", `"`, "", `'`, "")

// saysInLine reports whether a line says any of these words, which are in lower case. A configuration has a million lines, of which
// nearly all hide nothing and do not even have the last word.
func saysInLine(line haproxycfg.Line, words ...string) bool {
	if !bytes.ContainsAny(line.Text, "\\\"'$") {
		lower := bytes.ToLower(line.Text)
		if !slices.ContainsFunc(words, func(what string) bool {
			return bytes.Contains(lower, []byte(what[strings.LastIndexByte(what, ' ')+1:]))
		}) {
			return false
		}
	}
	for _, text := range []string{strings.Join(line.Texts(), " "), unquoted.Replace(string(line.Text))} {
		text = strings.ToLower(text)
		whole := text
		if strings.Contains(text, "${") {
			whole = defaultForm.ReplaceAllString(text, "$1")
		}
		if slices.ContainsFunc(words, func(what string) bool { return strings.Contains(text, what) || strings.Contains(whole, what) }) {
			return true
		}
	}
	return false
}

// tail returns the last line of HAProxy's output that is not empty.
func tail(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return tidy(lines[len(lines)-1])
}

// message is one message of haproxy -c. File and Line are the place that it
// names, or zero.
type message struct {
	Level string // ALERT, WARNING or NOTICE
	File  string
	Line  int
	Text  string
}

var (
	// The forms that HAProxy 2.6 to 3.4 use: "config : parsing [f:1] : text",
	// "config : parsing [f:1]: text", "config : Parsing [f:1]: text",
	// "config : [f:1] : text", "config : text", "text".
	messageForm = regexp.MustCompile(`^\[(ALERT|WARNING|NOTICE)\]\s+\(\d+\) : (?:config : )?(?:[Pp]arsing )?(?:\[([^\]:]+):(\d+)\]\s*)?:?\s*(.*)$`)
	// HAProxy prints this after every error; it says nothing.
	summaryForm = regexp.MustCompile(`^(Error\(s\) found in configuration file|Fatal errors found in configuration)`)
	// HAProxy 3.1 and later say this of every script, unless a setting that older ones do not know
	// names its default. The scripts hold no value that it is about.
	scriptForm = regexp.MustCompile(`^hlua: please set "tune\.lua\.bool-sample-conversion"`)
)

// HAProxy names a second place in some messages: a line of a file beside the configuration, or that of a bind line. But it
// also quotes what tenants wrote, who may write whatever looks like a place: they would choose whom to blame. So a second
// place counts only in the few forms in which HAProxy writes one, and where tenants' text cannot stand: these forms hold
// from the beginning of a message to the place, or from the place to its end. In case of doubt the first place counts.
const ofBindLine = `^('bind [^']*' in section '[^']*' : '(?:crt|crt-list|ssl-f-use)' : )`

// innerForms match the text of messages with a second place, which is in a file beside the configuration. The groups are
// before, file, line and after.
var innerForms = []*regexp.Regexp{
	regexp.MustCompile(ofBindLine + `parsing \[(?P<file>[^\]:]+):(?P<line>\d+)\]\s*:?\s*(?P<after>.*)$`),
	regexp.MustCompile(ofBindLine + `error processing line (?P<line>\d+) in file '(?P<file>[^']+)' : (?P<after>.*)$`),
	regexp.MustCompile(ofBindLine[:len(ofBindLine)-1] + `'[^']*') in crt-list '(?P<file>[^']+)' line (?P<line>\d+),(?P<after>.*)$`),
	// A pattern may be anything, but HAProxy adds the place at the end. These are the patterns of ACLs and the entries of maps.
	regexp.MustCompile(`^((?:error detected|invalid args in converter) .*) at line (?P<line>\d+) of file '(?P<file>[^']+)'\.?(?P<after>)$`),
}

// endForm matches a message without a place before its text that names that of a bind line or server at its end.
var endForm = regexp.MustCompile(`^([A-Za-z ]+'[A-Za-z0-9_.:-]+' ?: .*(?:'bind [^']*'|\b(?:bind|server) '[^']*')) at \[(?P<file>[^\]:]+):(?P<line>\d+)\]\.?(?P<after>)$`)

// placeForm matches whatever looks like a second place.
var placeForm = regexp.MustCompile(`\[[^\]:\[]+:\d+\]|\bline \d+\b`)

// staged says whether HAProxy was given a file with such a line.
type staged func(file string, line int) bool

// parseOutput reads what haproxy -c wrote to stderr. The further lines of a message show the faulty line, which users see
// anyway. So only the first line is kept, and the next one if the first only gives the place.
func parseOutput(stderr string, has staged) []message {
	var out []message
	lines := strings.SplitAfter(stderr, "\n")
	for i, line := range lines {
		if strings.HasSuffix(line, "' : \n") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
			line = line[:len(line)-1] + strings.TrimSpace(lines[i+1])
		}
		m := messageForm.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || m[1] == "NOTICE" || summaryForm.MatchString(m[4]) || scriptForm.MatchString(m[4]) {
			continue
		}
		number, _ := strconv.Atoi(m[3])
		out = append(out, message{Level: m[1], File: m[2], Line: number, Text: tidy(m[4])}.inner(has))
	}
	return out
}

// inner moves to the second place of a message, if that is sure to be one that HAProxy wrote.
func (m message) inner(has staged) message {
	if len(placeForm.FindAllString(m.Text, 2)) != 1 {
		return m // or several, and one of them may be a tenant's
	}
	if m.File == "" {
		if moved, ok := m.moved(endForm); ok && moved.File == stagedConfig && has(moved.File, moved.Line) {
			return moved
		}
		return m
	}
	for _, form := range innerForms {
		// The folder of the other files has a name that no tenant knows.
		if moved, ok := m.moved(form); ok && moved.File != stagedConfig && has(moved.File, moved.Line) {
			return moved
		}
	}
	return m
}

// moved returns the message at the place that its text names in a form, without that place in the text. What comes
// before the place must not end within quotes.
func (m message) moved(form *regexp.Regexp) (message, bool) {
	found := form.FindStringSubmatch(m.Text)
	if found == nil || strings.Count(found[1], "'")%2 != 0 {
		return m, false
	}
	line, err := strconv.Atoi(found[form.SubexpIndex("line")])
	m.File, m.Line, m.Text = found[form.SubexpIndex("file")], line, tidy(found[1]+found[form.SubexpIndex("after")])
	return m, err == nil
}

// tidy removes the punctuation at the end of a message.
func tidy(text string) string { return strings.TrimRight(strings.TrimSpace(text), ".: ") }

// manyCertificates is from how many certificates on a folder is kept for the next check.
const manyCertificates = 32

// staging is a folder in which HAProxy checks a configuration.
type staging struct {
	*scratch.Folder
	certificates map[string]written // by path
}

// written is a file as it was when it was written.
type written struct {
	content []byte
	info    os.FileInfo
}

// stagings are the folders of a [Checker]. A disk takes as long to make a thousand small files, and to remove
// them, as HAProxy to check a configuration with them, and from one check to the next nearly all are the same.
type stagings struct {
	mu    sync.Mutex
	users int      // of Reuse
	idle  *staging // nil: there is none
}

// Reuse lets checks leave their certificates on the disk for the next check, until the function is called that it
// returns. It is for programs that check again and again.
func (c *Checker) Reuse() (end func()) {
	s := &c.stagings
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 && s.idle != nil {
			s.idle.Remove()
			s.idle = nil
		}
	})
}

// take returns a folder for a check with so many certificates. It does not take the folder of a check with far more
// certificates, which the next such check uses again.
func (s *stagings) take(certificates int) (*staging, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idle := s.idle; idle != nil && 2*certificates >= len(idle.certificates) {
		s.idle = nil
		if _, err := os.Lstat(idle.Path); err == nil {
			return idle, nil
		}
		idle.Remove()
	}
	folder, err := scratch.Make("", stagingPrefix)
	if err != nil {
		return nil, err
	}
	return &staging{Folder: folder, certificates: map[string]written{}}, nil
}

// give takes back a folder after a check.
func (s *stagings) give(done *staging) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 && len(done.certificates) >= manyCertificates {
		s.idle, done = done, s.idle
	}
	if done != nil {
		done.Remove()
	}
}

// stage writes the bound files into the folder. It keeps only those certificates of an earlier check that have the right
// content and are unchanged since: another program may clean up temporary files.
func (st *staging) stage(bound bind.Bound) error {
	layout := LayoutIn(st.Path)
	config := filepath.Join(st.Path, stagedConfig)
	if err := errors.Join(os.RemoveAll(layout.Maps), os.RemoveAll(layout.General), os.RemoveAll(config)); err != nil {
		return fmt.Errorf("clear staging directory: %w", err)
	}
	for _, sub := range []string{layout.Maps, layout.Certificates, layout.General} {
		if err := os.Mkdir(sub, 0o700); err != nil && !(sub == layout.Certificates && errors.Is(err, os.ErrExist)) {
			return fmt.Errorf("make staging directory: %w", err)
		}
	}
	before, now := st.certificates, make(map[string]written, len(st.certificates))
	st.certificates = nil // if this fails, nobody knows what is there
	for _, f := range bound.Files {
		known, ok := before[f.Path]
		delete(before, f.Path)
		if !ok || !bytes.Equal(known.content, f.Content) || !known.untouched(f.Path) {
			if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
				return fmt.Errorf("stage %s: %w", f.Source, err)
			}
			info, err := os.Lstat(f.Path)
			if err != nil {
				return fmt.Errorf("stage %s: %w", f.Source, err)
			}
			known = written{f.Content, info}
		}
		if filepath.Dir(f.Path) == layout.Certificates {
			now[f.Path] = known
		}
	}
	for path := range before {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear staging directory: %w", err)
		}
	}
	if err := os.WriteFile(config, bound.Config, 0o600); err != nil {
		return fmt.Errorf("stage %s: %w", snapshots.ConfigFile, err)
	}
	st.certificates = now
	return nil
}

func (w written) untouched(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, w.info) && info.Size() == w.info.Size() && info.ModTime().Equal(w.info.ModTime()) && info.Mode() == w.info.Mode()
}

// Stage writes the files of an instance below dir, which exists and is empty, bound to the directories
// of [LayoutIn]. haproxy.cfg is in dir itself.
func Stage(dir string, bound bind.Bound) error {
	st := staging{Folder: &scratch.Folder{Path: dir}, certificates: map[string]written{}}
	return st.stage(bound)
}
