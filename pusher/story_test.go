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
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// TestStories runs the stories in testdata/stories: a fleet of three, a, b and c, of which
// a is the canary, and a pusher, on a clock of their own. A line is a comment, a command,
// or, indented, what differs once all is calm after the command before it.
//
// A snapshot is named by its revision, a certificate of the Secret shop/web-tls by a number,
// in the order in which they were made. Commands are in the functions of the same names:
//
//	pusher begins | ends | is killed | loses its state
//	publish REVISION [without TLS | routes HOST=BACKEND … | of REVISION routes HOST=BACKEND …]
//	pin, approve, reject, retry, abort REVISION;  unpin
//	store goes | is back | is emptied;  delete, damage, mend REVISION
//	endpoints ADDRESS …;  endpoints of SERVICE ADDRESS …;  live FILE is gone | is empty | is broken
//	certificate [for DURATION | without key];  confirm the loss | another loss
//	a joins | leaves | refuses REVISION | refuses nothing | has API VERSION | has HAProxy VERSION
//	a hangs | is gone | drops | loses | is full | answers STATUS | takes DURATION [METHOD PATH [TIMES]];  a is well
//	edit a OLD NEW;  put a FILE;  remove a FILES;  copy a;  restart a [from its copy];  reload a;  drain, ready a ADDRESS
//	set OPTION DURATION;  policy LINE;  wait DURATION
//
// Of what is not seen at once is told on demand: writes (what was done to the instances since
// that was told last), files, routes, certificates, notices, events (in the cluster, since
// they were told last), log TEXT (how often it was said).
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

// story is a world that is told line by line.
type story struct {
	*world
	at      time.Time               // when it goes on, in another bubble of time
	ids     map[string]snapshots.ID // by revision
	numbers map[string]string       // of certificates, by serial number
	copies  map[string]string       // files of instances
	shown   []string
	told    map[string]int // writes of each instance, and notices
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{world: newWorld(t, "a", "b", "c"), ids: map[string]snapshots.ID{}, numbers: map[string]string{}, copies: map[string]string{}, told: map[string]int{}}
	s.certificate()
	return s
}

// goesOn returns the same story in another bubble of time.
func (s *story) goesOn(t *testing.T) *story {
	t.Helper()
	c := *s
	c.world = s.clone(t)
	c.watched, c.shown, c.ids, c.numbers, c.told = true, nil, maps.Clone(s.ids), maps.Clone(s.numbers), maps.Clone(s.told)
	return &c
}

// tell runs the commands of a story and returns it with what came of them.
func (s *story) tell(script []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(script)) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, now := range append(s.command(line), s.news()...) {
			fmt.Fprintf(&out, "\t%s\n", now)
		}
	}
	if s.life != nil {
		s.end()
	}
	return out.Bytes()
}

var instanceName = regexp.MustCompile(`^([a-f]|all)$`)

// command carries out one command, and returns what it asked for.
func (s *story) command(line string) []string {
	s.t.Helper()
	words := strings.Fields(line)
	verb, args := words[0], words[1:]
	arg := cmp.Or(strings.Join(args, " "), "")
	switch {
	case instanceName.MatchString(verb):
		s.instance(verb, args)
		return nil
	case verb == "pin" && s.ids[arg].IsZero():
		s.ids[arg] = snapshots.ID{Revision: 77, Short: "0123456789"}
	}
	switch id := s.ids[arg]; verb {
	case "pusher":
		s.pusher(arg)
	case "terms":
		s.terms = true
	case "wait":
		pass(s.duration(arg))
	case "set":
		s.set(args[0], s.duration(args[1]))
	case "policy":
		s.rollout = "  rollout: {" + arg + "}\n"
		s.writeFleet(slices.Sorted(maps.Keys(s.instances))...)
	case "publish":
		s.ids[args[0]] = s.publishAs(args[0], args[1:])
	case "pin", "unpin", "approve", "reject", "retry", "abort", "confirm":
		s.channel(func(c channel.Channel) channel.Channel { return s.say(c, verb, arg, id) })
	case "store", "delete", "damage", "mend":
		s.storage(verb, arg)
	case "endpoints":
		if service := "web"; args[0] != "of" {
			s.served(service, args)
		} else {
			s.served(args[1], args[2:])
		}
	case "live":
		s.manifest(args[0], strings.Join(args[1:], " "))
	case "certificate":
		s.certificate(args...)
	case "edit", "put", "remove", "copy", "restart", "reload", "drain", "ready":
		s.byHand(verb, s.named(args[0]), args[1:])
	default:
		return s.ask(verb, arg)
	}
	return nil
}

// ask returns what there is to see on demand.
func (s *story) ask(verb, arg string) []string {
	s.t.Helper()
	switch verb {
	case "writes":
		return s.each(func(name string, is fakeState) []string {
			news := is.writes[s.told[name]:]
			s.told[name] = len(is.writes)
			return news
		})
	case "files":
		return s.each(func(_ string, is fakeState) []string {
			return []string{fmt.Sprint("has ", slices.Sorted(maps.Keys(is.files)))}
		})
	case "routes":
		return s.each(func(_ string, is fakeState) []string { return []string{"routes " + is.routes()} })
	case "certificates":
		return s.each(func(_ string, is fakeState) []string {
			number := s.numbers[fmt.Sprint(leafOf(is.worker.certificates["/etc/haproxy/ssl/shop_web-tls.pem"]).SerialNumber)]
			return []string{"serves certificate " + cmp.Or(number, "of nobody")}
		})
	case "notices":
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []string
		for _, n := range s.notices[s.told["notices"]:] {
			out = append(out, fmt.Sprintf("%s of %s: %s", n.Event, s.plain(n.Snapshot), s.plain(n.Text)))
		}
		s.told["notices"] = len(s.notices)
		return out
	case "events":
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []string
		for _, e := range s.said {
			out = append(out, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, s.plain(e.Note)))
		}
		s.said = nil
		return out
	case "log":
		return []string{fmt.Sprintf("%d times", strings.Count(s.plain(s.logged()), arg))}
	}
	s.t.Fatalf("%s is no command", verb)
	return nil
}

// each says something of each instance; of those that are alike together.
func (s *story) each(say func(name string, is fakeState) []string) []string {
	var out []string
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		for _, line := range say(name, s.all[name].state()) {
			if names[line] == "" {
				out = append(out, line)
			}
			names[line] += name + " "
		}
	}
	for n, line := range out {
		out[n] = names[line] + line
	}
	return out
}

func (s *story) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	s.must(err)
	return d
}

// set changes an option of the pusher that begins next.
func (s *story) set(option string, to time.Duration) {
	s.t.Helper()
	o := &s.options
	at := map[string]*time.Duration{
		"poll": &o.PollInterval, "reload": &o.ReloadTimeout, "drain": &o.DrainTime, "persist": &o.PersistInterval,
		"inspect": &o.InspectInterval, "collect": &o.CollectAfter, "soak": new(time.Duration),
	}[option]
	if *at = to; option == "soak" {
		o.Soak = at
	}
}

func (s *story) pusher(does string) {
	s.t.Helper()
	switch does {
	case "begins":
		s.begin()
	case "ends":
		s.end()
	case "is killed":
		s.life.mu.Lock()
		s.life.die()
		s.life.mu.Unlock()
		s.kill()
	case "loses its state":
		s.must(os.RemoveAll(filepath.Dir(s.options.State)))
	default:
		s.t.Fatalf("the pusher does not know how to do %q", does)
	}
}

// publishAs publishes a snapshot that says which it is.
func (s *story) publishAs(revision string, with []string) snapshots.ID {
	s.t.Helper()
	d := draftTLS(revision)
	d.Files[1].Content = []byte("shop.example.com shop_" + revision + "\n")
	switch how := strings.Join(with, " "); {
	case how == "":
	case how == "without TLS":
		d.Files[2].Content, d.Certificates = []byte("certs/fallback.pem\n"), d.Certificates[:1]
	case with[0] == "of": // the content of another, with other routes
		d = draftTLS(with[1])
		d.Files[1].Content = []byte(strings.ReplaceAll(strings.Join(with[3:], "\n"), "=", " ") + "\n")
	case with[0] == "routes":
		d.Files[1].Content = []byte(strings.ReplaceAll(strings.Join(with[1:], "\n"), "=", " ") + "\n")
	default:
		s.t.Fatalf("nothing is published %s", how)
	}
	id, published, err := s.store.Publish(s.t.Context(), d)
	s.must(err)
	if !published {
		s.t.Fatalf("%s is there already", revision)
	}
	return id
}

// say changes the channel.
func (s *story) say(c channel.Channel, verb, arg string, id snapshots.ID) channel.Channel {
	switch verb {
	case "pin":
		c = c.Pinned(channel.Pin{Snapshot: id, At: time.Now()})
	case "unpin":
		c = c.Unpinned()
	case "approve":
		c = c.WithApproval(true).Approve(id)
	case "abort":
		c = c.Aborted(channel.Order{Snapshot: id, By: "ann", At: time.Now()})
	case "retry":
		rejection, _ := c.Rejection(id)
		c, _ = c.Retry(rejection.Digest)
	case "confirm":
		loss := "00000000"
		if kept := s.seen().Kept; arg == "the loss" {
			loss = kept.Loss
		}
		c = c.Confirmed(channel.Confirmation{Loss: loss, By: "ann"})
	}
	return c
}

// storage does something to the store.
func (s *story) storage(verb, arg string) {
	s.t.Helper()
	store := filepath.Join(s.dir, "store")
	switch verb {
	case "delete":
		s.must(s.store.Delete(s.t.Context(), s.ids[arg]))
	case "damage", "mend":
		whole := []byte(config(arg, tlsConfig))
		if verb == "damage" {
			whole = whole[:len(whole)/2]
		}
		s.must(os.WriteFile(filepath.Join(store, "snapshots", s.ids[arg].String(), snapshots.ConfigFile), whole, 0o600))
	case "store":
		switch arg {
		case "goes":
			s.must(os.Rename(store, store+".away"))
		case "is back":
			s.must(os.Rename(store+".away", store))
		case "is empty":
			s.must(os.MkdirAll(store, 0o755))
		}
	}
}

// served gives a Service these endpoints.
func (s *story) served(service string, addresses []string) {
	s.t.Helper()
	for n, a := range addresses {
		addresses[n] = a + ":80"
	}
	file := "live/endpoints.yaml"
	if service != "web" {
		file = "live/" + service + ".yaml"
	}
	s.endpointsOf(service, file, addresses...)
}

// manifest does something to a file of live objects.
func (s *story) manifest(name, becomes string) {
	s.t.Helper()
	name = "live/" + name + ".yaml"
	switch becomes {
	case "is gone":
		s.must(os.Remove(filepath.Join(s.dir, name)))
		s.changed()
	case "is empty":
		s.write(name, "")
	case "is broken":
		s.write(name, "kind: [\n")
	}
}

// certificate has a new one in the Secret shop/web-tls.
func (s *story) certificate(args ...string) {
	s.t.Helper()
	end, edit := time.Now().AddDate(1, 0, 0), func(crt, key []byte) ([]byte, []byte) { return crt, key }
	switch {
	case len(args) == 2 && args[0] == "for":
		end = time.Now().Add(s.duration(args[1]))
	case len(args) == 2:
		edit = func(crt, _ []byte) ([]byte, []byte) { return crt, []byte("none") }
	}
	s.numbers[s.secretUntil(end, edit)] = strconv.Itoa(len(s.numbers) + 1)
}

// instance has something happen to an instance.
func (s *story) instance(name string, words []string) {
	s.t.Helper()
	if name == "all" {
		for name := range s.instances {
			s.instance(name, words)
		}
		return
	}
	i := s.named(name)
	switch words[0] {
	case "joins":
		s.join(name)
		return
	case "leaves":
		s.leave(name)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch two := strings.Join(words[:min(2, len(words))], " "); {
	case words[0] == "refuses":
		i.refuses = map[bool]string{true: "", false: "x-revision " + words[1]}[words[1] == "nothing"]
	case two == "has API":
		i.version = words[2]
	case two == "has HAProxy":
		i.haproxy = words[2]
	case two == "is well":
		i.ails = nil
	default:
		i.ails = append(i.ails, s.ailment(words))
	}
}

// ailment reads one, such as: answers 503 POST /storage/maps 2
func (s *story) ailment(words []string) (a ailment) {
	s.t.Helper()
	n := 1
	switch words[0] {
	case "hangs":
		a.hangs = true
	case "drops":
		a.drops = true
	case "loses":
		a.loses = true
	case "is": // gone; full
		n, a.drops = 2, words[1] == "gone"
		if words[1] == "full" {
			a.status, a.says = 500, "no space left on device"
		}
	case "answers":
		n, a.says = 2, "general error"
		a.status, _ = strconv.Atoi(words[1])
	case "takes":
		n, a.takes = 2, s.duration(words[1])
	default:
		s.t.Fatalf("an instance does not know how to do %q", words)
	}
	if words = words[n:]; len(words) > 1 {
		a.method, a.path = words[0], words[1]
	}
	if len(words) > 2 {
		a.times, _ = strconv.Atoi(words[2])
	}
	return a
}

// byHand does something to an instance that no pusher does.
func (s *story) byHand(verb string, i *fakeInstance, args []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch verb {
	case "edit": // which the API takes for a version more
		i.disk = strings.Replace(i.disk, args[0], args[1], 1)
		i.memory++
	case "put":
		i.files[args[0]] = "of somebody else"
	case "remove":
		maps.DeleteFunc(i.files, func(key, _ string) bool { return strings.HasPrefix(key, args[0]) })
	case "copy":
		s.copies[i.name] = i.disk
	case "restart":
		if len(args) > 0 {
			i.disk = s.copies[i.name]
		}
		i.load()
	case "reload":
		i.load()
	case "drain", "ready":
		for n, server := range i.worker.servers["shop_web"] {
			if server.Address == args[0] {
				i.worker.servers["shop_web"][n].set(verb)
			}
		}
	}
}

// The pace at which a story is looked at, and for how long nothing may move.
const (
	look    = 2 * time.Second
	calmFor = 16 * time.Second
	waits   = 3 * time.Minute // the same, in a rollout
	longest = time.Hour
)

// calm waits until nothing has moved for a while, or the pusher is killed. A rollout may wait
// for something all the same.
func (s *story) calm() {
	s.t.Helper()
	var last []string
	quiet := time.Duration(0)
	long := calmFor
	for began := time.Now(); s.life != nil && quiet < long && !s.life.dead(); pass(look) {
		now := s.view()
		if long = calmFor; s.seen().Rollout != nil {
			long = waits
		}
		for _, name := range slices.Sorted(maps.Keys(s.instances)) {
			now = append(now, fmt.Sprint(len(s.instances[name].state().writes)))
		}
		if slices.Equal(now, last) {
			quiet += look
		} else if last, quiet = now, 0; time.Since(began) > longest {
			s.t.Fatalf("it does not come to rest: %q", now)
		}
	}
}

// news returns what a person sees that is not as it was, once all is calm.
func (s *story) news() []string {
	s.t.Helper()
	if s.life == nil {
		return nil
	}
	s.calm()
	before, out := s.shown, []string(nil)
	s.shown = s.view()
	for _, line := range s.shown {
		if !slices.Contains(before, line) {
			out = append(out, line)
		}
	}
	for _, line := range before {
		// What an instance, or the fleet, runs is said anew when it is another.
		if !slices.Contains(s.shown, line) && lasting.MatchString(line) {
			out = append(out, "no longer "+line)
		}
	}
	return out
}

var lasting = regexp.MustCompile(`^(trouble|rejected|rollout|the fleet is) `)

// view returns what there is to be seen, a line each.
func (s *story) view() []string {
	status := s.seen()
	first := "good " + cmp.Or(s.plain(status.Good.String()), "nothing")
	if c := status.Channel; c.Hold {
		first += ", held for " + cmp.Or(string(c.Because), "the store")
	} else {
		first += ", wanted " + s.plain(c.Wanted.String())
	}
	if behind := status.Channel.Behind; behind > 0 {
		first += fmt.Sprintf(", %d behind", behind)
	}
	out := []string{first}
	if p := status.Condition().Phase; p == observe.Degraded {
		out = append(out, fmt.Sprintf("the fleet is %s", p))
	}
	if r := status.Rollout; r != nil {
		line := fmt.Sprintf("rollout of %s, %s", s.plain(r.Target.String()), r.Phase)
		if r.Noted != "" {
			line += ", noted " + r.Noted
		}
		out = append(out, line)
	}
	for _, r := range status.Rejected {
		out = append(out, fmt.Sprintf("rejected %s: %s", s.plain(r.Snapshot.String()), s.plain(r.Reason)))
	}
	for _, t := range status.Troubles {
		out = append(out, fmt.Sprintf("trouble with %s: %s", t.About, s.plain(t.Error)))
	}
	return append(out, s.each(func(name string, is fakeState) []string { return []string{s.viewOf(statusOf(status, name), is)} })...)
}

// viewOf says what an instance runs.
func (s *story) viewOf(status observe.InstanceStatus, is fakeState) string {
	id, _, _ := strings.Cut(is.worker.node, "_")
	if status.Name == "" {
		return "has left, and runs " + s.plain(id)
	}
	out := fmt.Sprintf("runs %s, ", s.plain(id))
	if !status.InSync {
		out += "not in sync, "
	}
	if status.Refused {
		out += "refused for " + status.Error + ", "
	} else if !status.Reachable {
		out += "out of reach, "
	}
	if status.Foreign != "" {
		out += "from another configuration, "
	}
	out += fmt.Sprintf("serves %v, reloaded %d", is.worker.ready("shop_web"), is.reloads)
	if !strings.HasPrefix(is.disk, fmt.Sprintf("# _version=%d\n", is.memory)) {
		out += ", its disk is not what its API has"
	}
	if status.Conflict != nil {
		out += ", in conflict"
	}
	for _, d := range status.ManualDrains {
		out += ", " + d.Server + " is drained by hand"
	}
	return out
}

// plain has revisions in the place of snapshots, and nothing that differs each time.
func (s *story) plain(text string) string {
	for revision, id := range s.ids {
		text = strings.ReplaceAll(text, id.String(), revision)
	}
	for serial, number := range s.numbers {
		text = strings.ReplaceAll(text, serial, "of number "+number)
	}
	return digestForm.ReplaceAllString(strings.ReplaceAll(text, s.dir, "$DIR"), "DIGEST")
}

// digestForm is that of digests, of losses that are to be confirmed, and of states' ids.
var digestForm = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{16}|[0-9a-f]{8})\b`)
