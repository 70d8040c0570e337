package memory

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// Befall makes something happen to the instance, such as: refuses 2, has API v3.2.5, hangs, is well. It names a
// configuration by its revision, which is in the header x-revision.
func (f *Instance) Befall(words []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch two := strings.Join(words[:min(2, len(words))], " "); {
	case two == "refuses nothing":
		f.refuses = ""
	case words[0] == "refuses":
		f.refuses = "x-revision " + words[1]
	case two == "has API":
		f.version = words[2]
	case two == "has HAProxy":
		f.haproxy = words[2]
	case two == "fails requests":
		f.failing = "x-revision " + words[3]
	case words[0] == "finds":
		f.down = words[1]
		if len(words) > 3 {
			f.downIn = "x-revision " + words[4]
		}
	case two == "is well":
		f.ails, f.failing, f.down, f.downIn = nil, "", "", ""
	default:
		a, err := parseAilment(words)
		if err != nil {
			return err
		}
		f.ails = append(f.ails, a)
	}
	return nil
}

// Refuses reports whether there is a configuration with which the instance does not start.
func (f *Instance) Refuses() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuses != ""
}

// Serve answers a request with the current faults. A nil answer means a closed connection.
func (f *Instance) Serve(q *http.Request, givenUp <-chan struct{}, answered chan<- *http.Response) {
	ail := f.take(q)
	pass(way + ail.takes)
	var answer *http.Response
	switch {
	case ail.hangs:
		<-givenUp
		return
	case ail.drops:
	case ail.body != "":
		w := httptest.NewRecorder()
		_, _ = w.WriteString(ail.body)
		answer = w.Result()
	case ail.status != 0:
		if ail.commits {
			f.commitOnly(q)
		}
		w := httptest.NewRecorder()
		f.fail(w, ail.status, "%s", ail.says)
		answer = w.Result()
	default:
		w := httptest.NewRecorder()
		f.api.ServeHTTP(w, q)
		if answer = w.Result(); ail.loses {
			answer = nil
		}
	}
	pass(way)
	answered <- answer
}

// ailment is a fault of requests with a method, "" for any, to a path with a prefix, for a number of times; 0
// means until it is healed.
type ailment struct {
	method, path string
	times        int

	hangs, drops, loses bool // no answer; a connection closed before anything was done, or after
	takes               time.Duration
	commits             bool // the request is carried out, except for the reload
	status              int
	says                string
	body                string // of a 200 that is not the answer
}

// take returns the first ailment for a request and counts it.
func (f *Instance) take(q *http.Request) ailment {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(q.URL.Path, "/v3/services/haproxy")
	for n, a := range f.ails {
		if a.method != "" && a.method != q.Method || !strings.HasPrefix(path, a.path) {
			continue
		}
		if f.ails[n].times--; f.ails[n].times == 0 {
			f.ails = slices.Delete(f.ails, n, n+1)
		}
		return a
	}
	return ailment{}
}

// parseAilment reads one, such as: answers 503 POST /storage/maps 2
func parseAilment(words []string) (a ailment, err error) {
	n := 1
	switch words[0] {
	case "hangs":
		a.hangs = true
	case "drops":
		a.drops = true
	case "loses":
		a.loses = true
	case "ignores":
		a.status, a.says = 200, ""
	case "babbles":
		n, a.body = 2, map[string]string{"html": "<html>a login page</html>", "nothing": " "}[words[1]]
		if a.body == "" {
			a.body = words[1] // null, [] and {} are JSON of another kind
		}
	case "cannot":
		n, a.status, a.commits = 2, 400, true
		a.says = "Reload failed: cannot reload: dial unix /run/m.sock: connect: no such file or directory"
	case "is": // gone; full
		n, a.drops = 2, words[1] == "gone"
		if words[1] == "full" {
			a.status, a.says = 500, "no space left on device"
		}
	case "answers":
		n, a.says = 2, "general error"
		a.status, err = strconv.Atoi(words[1])
	case "takes":
		n = 2
		a.takes, err = time.ParseDuration(words[1])
	default:
		return a, fmt.Errorf("an instance does not know how to do %q", words)
	}
	if words = words[n:]; len(words) > 1 {
		a.method, a.path = words[0], words[1]
	}
	if len(words) > 2 {
		a.times, err = strconv.Atoi(words[2])
	}
	return a, err
}

// ByHand does something to the instance that no pusher does, such as: edit OLD NEW.
func (f *Instance) ByHand(verb string, args []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch verb {
	case "edit": // which the API takes for a version more
		f.Disk = edited(f.Disk, args[0], args[1])
		f.Memory++
	case "term": // in which the file claims to be written
		f.Disk = termLine.ReplaceAllString(f.Disk, "# hapsnap term "+args[0])
		f.Memory++
	case "put":
		f.Files[args[0]] = "of somebody else"
	case "remove":
		maps.DeleteFunc(f.Files, func(key, _ string) bool { return strings.HasPrefix(key, args[0]) })
	case "copy":
		f.copied = f.Disk
	case "forget":
		for name, m := range f.Worker.maps {
			f.Worker.maps[name] = slices.DeleteFunc(m, func(e dataplane.MapEntry) bool { return e.Key == args[0] })
		}
	case "fail": // to load what somebody else posted: the file is put back, and the memory stays
		f.Memory++
	case "post": // which nobody loads
		f.Memory++
		f.Disk = fmt.Sprintf("# _version=%d\n%s", f.Memory, versionLine.ReplaceAllString(f.copied, ""))
	case "restart", "reload":
		switch {
		case len(args) == 3 && args[0] == "with":
			f.Disk = strings.Replace(f.Disk, args[1], args[2], 1)
			f.Memory++
		case len(args) > 0:
			f.Disk = f.copied
		}
		f.load()
	case "drain", "maint", "ready", "move":
		for n, server := range f.Worker.servers["shop_web"] {
			switch {
			case server.Address != args[0]:
			case verb == "move":
				f.Worker.servers["shop_web"][n].Address = args[1]
			default:
				f.Worker.servers["shop_web"][n].set(verb)
			}
		}
	}
}

var termLine = regexp.MustCompile(`(?m)^# hapsnap term \d+$`)

var versionLine = regexp.MustCompile(`^# _version=\d+\n`)

// pass lets time pass in a bubble of time, where that takes none.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // it is over as soon as everybody waits for it
}

// edited returns a configuration in which somebody changed a text. The comments at its head stay: they have
// random ids, which may contain any text.
func edited(config, from, to string) string {
	head := 0
	for line := range strings.Lines(config) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		head += len(line)
	}
	return config[:head] + strings.Replace(config[head:], from, to, 1)
}
