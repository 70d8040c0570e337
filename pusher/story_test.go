package pusher

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// TestStories runs the stories in testdata/stories: a fleet of three, a, b and c, of which
// a is the canary, and a pusher, on a clock of their own. A line is a comment, a command,
// or, indented, what differs once all is calm after the command before it.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			synctest.Test(t, func(t *testing.T) { got = newStory(t).tell(want) })
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s went otherwise (rewrite with -update):\n%s", file, got)
			}
		})
	}
}

// story is a play that is told line by line.
type story struct {
	*play
	ids     map[string]snapshots.ID // by revision
	shown   []string
	writes  map[string]int // of each instance, that were told
	lives   int
	running bool
}

func newStory(t *testing.T) *story {
	t.Helper()
	soak := 6 * time.Second
	s := &story{
		play: &play{t: t, settling: &settling{dir: t.TempDir(), instances: map[string]*fakeInstance{}, unkilled: true}},
		ids:  map[string]snapshots.ID{}, writes: map[string]int{},
	}
	s.options = Options{
		Soak: &soak, PollInterval: 2 * time.Second, DrainTime: 3 * time.Second, PersistInterval: 3 * time.Second,
		InspectInterval: 5 * time.Second, CollectAfter: 8 * time.Second,
	}
	s.live = liveWith(binding.Objects{Slices: 1}, "10.0.0.1")
	s.live.Certificates = map[snapshots.SecretName][]byte{webTLS: newPEM(t)}
	killScenario{}.prepare(t, s.settling)
	return s
}

// tell runs the commands of a story and returns it with what came of them.
func (s *story) tell(script []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(script)) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] == "writes" {
			s.tellWrites(&out)
			continue
		}
		s.command(words[0], words[1:])
		for _, now := range s.calm() {
			fmt.Fprintf(&out, "\t%s\n", now)
		}
	}
	if s.running {
		s.life.end()
	}
	return out.Bytes()
}

// command carries out one command.
func (s *story) command(verb string, args []string) {
	s.t.Helper()
	store := filepath.Join(s.dir, "store")
	switch verb {
	case "pusher": // begins; ends; loses its state
		s.pusher(args[0])
	case "publish": // REVISION
		s.ids[args[0]] = s.publish(args[0])
	case "pin": // REVISION, or one that is not there
		id, there := s.ids[args[0]]
		if !there {
			id = snapshots.ID{Revision: 77, Short: "0123456789"}
			s.ids[args[0]] = id
		}
		s.say(func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: id, At: time.Now()}) })
	case "unpin":
		s.say(channel.Channel.Unpinned)
	case "retry": // REVISION, which was rejected
		s.say(func(c channel.Channel) channel.Channel {
			rejection, _ := c.Rejection(s.ids[args[0]])
			c, _ = c.Retry(rejection.Digest)
			return c
		})
	case "endpoints": // ADDRESS …
		if s.live = liveWith(s.live, args...); s.running {
			s.take(s.live)
		}
	case "refuses": // NAME REVISION, which does not start there; or NAME nothing
		i := s.instances[args[0]]
		i.mu.Lock()
		i.refuses = map[bool]string{true: "", false: "x-revision " + args[1]}[args[1] == "nothing"]
		i.mu.Unlock()
	case "store": // goes; is back
		from, to := store, store+".away"
		if args[0] == "is" {
			from, to = to, from
		}
		s.must(os.Rename(from, to))
	case "delete": // REVISION
		s.must(s.store().Delete(s.t.Context(), s.ids[args[0]]))
	case "damage", "mend": // REVISION
		file := filepath.Join(store, "snapshots", s.ids[args[0]].String(), snapshots.ConfigFile)
		whole := []byte(config(args[0], tlsConfig))
		if verb == "damage" {
			whole = whole[:len(whole)/2]
		}
		s.must(os.WriteFile(file, whole, 0o600))
	default:
		s.t.Fatalf("%s is no command", verb)
	}
}

func (s *story) pusher(does string) {
	s.t.Helper()
	switch does {
	case "begins":
		folder := filepath.Join(s.dir, fmt.Sprintf("pusher%d", s.lives))
		s.must(os.MkdirAll(folder, 0o700))
		s.begin(folder)
		s.running = true
	case "ends":
		s.life.end()
		s.running = false
	case "loses": // its state
		s.lives++
	}
}

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) say(edit func(channel.Channel) channel.Channel) {
	s.t.Helper()
	s.must(s.store().UpdateChannel(s.t.Context(), "by hand", time.Now(), func(c *channel.Channel) error {
		*c = edit(*c)
		return nil
	}))
}

// calm waits until nothing has moved for a while, and returns what a person sees that is
// not as it was.
func (s *story) calm() []string {
	s.t.Helper()
	if s.life == nil {
		return nil
	}
	before, last, quiet := s.shown, []string(nil), time.Duration(0)
	for began := time.Now(); quiet < calmFor; pass(look) {
		if now := s.view(); slices.Equal(now, last) && s.life.seen().Rollout == nil {
			quiet += look
		} else if last, quiet = now, 0; time.Since(began) > longest {
			s.t.Fatalf("it does not come to rest: %q", now)
		}
	}
	s.shown = last
	var out []string
	for _, line := range last {
		if !slices.Contains(before, line) {
			out = append(out, line)
		}
	}
	for _, line := range before {
		// What an instance, or the fleet, runs is said anew when it is another.
		if !slices.Contains(last, line) && (strings.HasPrefix(line, "trouble ") || strings.HasPrefix(line, "rejected ")) {
			out = append(out, "no longer "+line)
		}
	}
	return out
}

// view returns what there is to be seen, a line each.
func (s *story) view() []string {
	status := s.life.seen()
	out := []string{"good " + cmp.Or(s.named(status.Good.String()), "nothing")}
	if c := status.Channel; c.Hold {
		out = append(out, fmt.Sprintf("held for %s, %d behind", cmp.Or(c.Because, "the store"), c.Behind))
	} else {
		out = append(out, fmt.Sprintf("wanted %s, %d behind", s.named(c.Wanted.String()), c.Behind))
	}
	for _, r := range status.Rejected {
		out = append(out, fmt.Sprintf("rejected %s: %s", s.named(r.Snapshot.String()), s.named(r.Reason)))
	}
	for _, t := range status.Troubles {
		out = append(out, fmt.Sprintf("trouble with %s: %s", t.About, s.named(t.Error)))
	}
	for _, name := range slices.Sorted(maps.Keys(s.instances)) {
		is, sync := s.instances[name].state(), "not in sync"
		if statusOf(status, name).InSync {
			sync = "in sync"
		}
		id, _, _ := strings.Cut(is.worker.node, "_")
		line := fmt.Sprintf("%s runs %s, %s, serves %v, reloaded %d", name, s.named(id), sync, is.worker.ready("shop_web"), is.reloads)
		if !strings.HasPrefix(is.disk, fmt.Sprintf("# _version=%d\n", is.memory)) {
			line += ", its disk is not what its API has"
		}
		out = append(out, line)
	}
	return out
}

// named has revisions in the place of snapshots.
func (s *story) named(text string) string {
	for revision, id := range s.ids {
		text = strings.ReplaceAll(text, id.String(), revision)
	}
	return digestForm.ReplaceAllString(strings.ReplaceAll(text, s.dir, "$DIR"), "DIGEST")
}

var digestForm = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// tellWrites says what was done to each instance since it was last said.
func (s *story) tellWrites(out *bytes.Buffer) {
	for _, name := range slices.Sorted(maps.Keys(s.instances)) {
		all := s.instances[name].state().writes
		for _, w := range all[s.writes[name]:] {
			fmt.Fprintf(out, "\t%s: %s\n", name, w)
		}
		s.writes[name] = len(all)
	}
}
