package bind

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
)

// The limits of a directive. Gateway API allows weights up to a million; the
// limit of slots keeps a slip of the pen from making a huge configuration.
const (
	defaultWeight = 100
	maxWeight     = 1_000_000
	maxMinSlots   = 10_000
)

// Directive says where the server lines of a Service belong. It is a comment
// of its own in a backend or listen section:
//
//	#hapsnap servers NAMESPACE/SERVICE[:PORT] [weight=N] [slots=N] [-- OPTIONS]
//
// Weight is the share of the Service among the directives of its backend, 0 to
// 1,000,000, default 100. Slots is the least number of server slots to keep.
// Options are appended to each server line as they stand; they may hold
// neither a comment nor weight, disabled or enabled, which are set by [Bind].
// In one backend a Service port has one directive.
type Directive struct {
	Line    int // in haproxy.cfg, from 1
	Backend string
	Index   int // among the directives of the backend, from 0
	Service snapshots.ServicePort
	Weight  int
	Slots   int // 0: as many as the endpoints need
	Options string
}

// Key is the key of the directive's slots in the slot table.
func (d Directive) Key() SlotKey { return SlotKey{d.Backend, d.Service} }

// ServerName returns the name of the directive's server in slot i, from 0: s1,
// s2 … for the first directive of a backend, s2-1, s2-2 … for the second, s3-1
// … for the third.
func (d Directive) ServerName(i int) string {
	if d.Index == 0 {
		return "s" + strconv.Itoa(i+1)
	}
	return "s" + strconv.Itoa(d.Index+1) + "-" + strconv.Itoa(i+1)
}

// DirectiveError is a directive that cannot be followed.
type DirectiveError struct {
	Line    int // in haproxy.cfg, from 1
	Message string
}

// Error returns "haproxy.cfg:LINE: #hapsnap: what is wrong".
func (e *DirectiveError) Error() string {
	return fmt.Sprintf("%s:%d: #hapsnap: %s", snapshots.ConfigFile, e.Line, e.Message)
}

// Directives returns the directives of a haproxy.cfg in the order of its lines; [UsersDirectives] returns those
// for users. The error is a [*DirectiveError]. It reports a directive that is malformed, in a wrong section, or
// unknown to this version. Ignored as a comment, such a directive would leave its backend without servers.
func Directives(config []byte) ([]Directive, error) {
	found, err := parseDirectives(config)
	return found.servers, err
}

// directives are the directives of a haproxy.cfg, each kind in the order of its lines.
type directives struct {
	servers []Directive
	users   []UsersDirective
	options map[string]bool // of servers, that were checked
	// lookedUp are the maps that haproxy.cfg looks up, see the function of this name. Only a [Binder] fills it in.
	lookedUp []string
}

func parseDirectives(config []byte) (directives, error) {
	out := directives{servers: make([]Directive, 0, bytes.Count(config, []byte("#hapsnap"))), options: map[string]bool{}}
	var in haproxycfg.Section
	services := map[string][]snapshots.ServicePort{} // by backend
	for line := range haproxycfg.Lines(config) {
		if opened, ok := haproxycfg.BeginSection(line); ok {
			in = opened
			continue
		}
		text, ok := DirectiveText(line.Text)
		if !ok {
			continue
		}
		var err error
		if after, ok := strings.CutPrefix(text, "users"); ok && (after == "" || haproxycfg.IsBlank(after[0])) {
			err = out.addUsers(line.Number, text, in)
		} else {
			err = out.addServers(line.Number, text, in, services)
		}
		if err != nil {
			return directives{}, &DirectiveError{line.Number, err.Error()}
		}
	}
	return out, nil
}

func (o *directives) addServers(number int, text string, in haproxycfg.Section, services map[string][]snapshots.ServicePort) error {
	d, err := parseDirective(text, in)
	if err != nil {
		return err
	}
	if !o.options[d.Options] { // most directives have the same
		if err := checkOptions(d.Options); err != nil {
			return err
		}
		o.options[d.Options] = true
	}
	if slices.Contains(services[d.Backend], d.Service) {
		return fmt.Errorf("backend %s has the servers of %s already", d.Backend, d.Service)
	}
	d.Line, d.Index = number, len(services[d.Backend])
	services[d.Backend] = append(services[d.Backend], d.Service)
	o.servers = append(o.servers, d)
	return nil
}

// DirectiveText returns what follows "#hapsnap" on a line of a haproxy.cfg that is a directive, without the blanks
// around it. What counts as a blank is the same as for HAProxy.
func DirectiveText(line []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(line, haproxycfg.Blanks), []byte("#hapsnap"))
	if !ok || (len(rest) > 0 && !haproxycfg.IsBlank(rest[0])) {
		return "", false
	}
	return strings.Trim(string(rest), haproxycfg.Blanks), true
}

// parseDirective reads what follows "#hapsnap" in the given section.
func parseDirective(text string, in haproxycfg.Section) (Directive, error) {
	head, options := cutOptions(text)
	words := strings.Fields(head)
	if len(words) == 0 || words[0] != "servers" {
		return Directive{}, fmt.Errorf("unknown directive %q", text)
	}
	if !in.HasServers() {
		return Directive{}, fmt.Errorf("servers belong in a backend or listen section")
	}
	if in.Name == "" || !isName(in.Name, ":") {
		return Directive{}, fmt.Errorf("section %s %q has no plain name", in.Keyword, in.Name)
	}
	if len(words) < 2 {
		return Directive{}, fmt.Errorf("servers needs NAMESPACE/SERVICE[:PORT]")
	}
	service, err := snapshots.ParseServicePort(words[1])
	if err != nil || !isName(service.Namespace+service.Service+service.Port, "") {
		return Directive{}, fmt.Errorf("%q is not NAMESPACE/SERVICE[:PORT]", words[1])
	}
	d := Directive{Backend: in.Name, Service: service, Weight: defaultWeight, Options: options}
	return d, d.setArguments(words[2:])
}

// cutOptions splits the text of a directive at the word "--".
func cutOptions(text string) (head, options string) {
	for at := 0; ; {
		i := strings.Index(text[at:], "--")
		if i < 0 {
			return text, ""
		}
		at += i + len("--")
		before, after := text[:at-len("--")], text[at:]
		if before != "" && haproxycfg.IsBlank(before[len(before)-1]) && (after == "" || haproxycfg.IsBlank(after[0])) {
			return before, strings.Trim(after, haproxycfg.Blanks)
		}
	}
}

func (d *Directive) setArguments(words []string) error {
	seen := map[string]bool{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if seen[name] {
			return fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		var err error
		switch name {
		case "weight":
			d.Weight, err = parseWithin(value, 0, maxWeight)
		case "slots":
			d.Slots, err = parseWithin(value, 1, maxMinSlots)
		default:
			return fmt.Errorf("unknown argument %q (server options follow \" -- \")", word)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func parseWithin(s string, least, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
	}
	return n, nil
}

// checkOptions refuses options that would undo what Bind writes on the line. A comment, or anything else that
// ends the line for HAProxy, would swallow the final "disabled". The words that Bind sets would be there twice.
func checkOptions(options string) error {
	const end = " end"
	line := []byte(options + end)
	words, err := haproxycfg.Words(line)
	switch _, comment := haproxycfg.Comment(line); {
	case err != nil:
		return fmt.Errorf("options: %w", err)
	case comment:
		return fmt.Errorf("options hold an unquoted #")
	case len(words) == 0 || words[len(words)-1].End != len(line):
		return fmt.Errorf("options hold what ends a line")
	}
	for _, word := range words {
		switch word.Text {
		case "weight":
			return fmt.Errorf("options hold weight; use weight=N before \" -- \"")
		case "disabled", "enabled":
			return fmt.Errorf("options hold %s, which is set by the endpoint's state", word.Text)
		}
	}
	return nil
}

// UsersDirective says where the users of a Secret belong. It is a comment of its
// own in a userlist section:
//
//	#hapsnap users NAMESPACE/SECRET
//
// [Bind] writes one user line for each line of htpasswd under the key auth of the
// Secret, see [htpasswd.Parse]. Without the Secret the list has no users, and
// nobody gets in.
type UsersDirective struct {
	Line     int // in haproxy.cfg, from 1
	Userlist string
	Secret   snapshots.SecretName
}

// UsersDirectives returns the directives for users of a haproxy.cfg in the order of its lines. Its errors are
// those of [Directives].
func UsersDirectives(config []byte) ([]UsersDirective, error) {
	found, err := parseDirectives(config)
	return found.users, err
}

// addUsers reads the text of a directive in the given section.
func (o *directives) addUsers(number int, text string, in haproxycfg.Section) error {
	words := strings.Fields(text)
	if in.Keyword != "userlist" {
		return fmt.Errorf("users belong in a userlist section")
	}
	if len(words) != 2 {
		return fmt.Errorf("users needs NAMESPACE/SECRET, and nothing else")
	}
	secret, err := snapshots.ParseSecretName(words[1])
	if err != nil || !isName(secret.Namespace+secret.Name, "") {
		return fmt.Errorf("%q is not NAMESPACE/SECRET", words[1])
	}
	for i := len(o.users) - 1; i >= 0 && o.users[i].Userlist == in.Name; i-- {
		if o.users[i].Secret == secret {
			return fmt.Errorf("userlist %s has the users of %s already", in.Name, secret)
		}
	}
	o.users = append(o.users, UsersDirective{number, in.Name, secret})
	return nil
}
