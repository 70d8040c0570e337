package pusher

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/memory"
	"github.com/hapsnap/hapsnap/internal/wholefile"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// TestStories runs the stories in testdata/stories. A story has a fleet of the instances a, b and
// c, of which a is the canary, and a pusher, on a clock of their own. A line is a comment or a
// command. An indented line is what has changed once all is calm after the command before it.
//
// A snapshot is named by its revision, and a certificate of the Secret shop/web-tls by a number, in
// the order in which they were made. Functions with the same names carry out the commands:
//
//	fleet runs REVISION …   (which is published, and a pusher begins; nothing is told where that is all)
//	pusher begins | ends | is killed | loses its state
//	publish REVISION [without TLS | exact NUMBER | sealed NUMBER KEY | routes HOST=BACKEND … | of REVISION routes HOST=BACKEND …]
//	pin, approve, reject, retry, abort REVISION;  unpin;  override REVISION DURATION;  tidied (of it)
//	store goes | is back | is emptied;  delete, damage, mend REVISION
//	endpoints ADDRESS …;  endpoints of SERVICE ADDRESS …;  live FILE is gone | is empty | is broken;  live none
//	certificate [for DURATION | without key];  identities KEY … | none (of the pusher that begins next);  confirm the loss | another loss
//	a joins | leaves | refuses REVISION | refuses nothing | has API VERSION | has HAProxy VERSION
//	a hangs | is gone | drops | loses | is full | answers STATUS | babbles html, nothing or JSON | takes DURATION [METHOD PATH [TIMES]];  a is well
//	edit a OLD NEW;  term a NUMBER;  put a FILE;  remove a FILES;  copy a;  restart a [from its copy];  reload a;  drain, ready a ADDRESS
//	set OPTION DURATION;  policy LINE;  wait DURATION
//
// Some things are shown only by a command: writes (to the instances since the last time), files,
// routes, certificates, backends, change REVISION, metric NAME, notices, events (in the cluster
// since the last time), log TEXT (how often it was logged), saved TEXT (how often the state has
// it).
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

// story is a world in which a story is run line by line.
type story struct {
	*world
	at      time.Time               // the time at which it goes on in another bubble
	ids     map[string]snapshots.ID // by revision
	numbers map[string]string       // of certificates, by serial number
	pairs   map[string]pair         // certificates with their keys, by number
	keys    map[string]*age.X25519Identity
	copied  []byte // the copied state
	shown   []string
	told    map[string]int // how much was shown: writes of each instance, and notices
}

// pair is a certificate with its key, and the version that names both.
type pair struct {
	data    []byte
	version string
}

// newStory returns a story with these instances, or with a, b and c.
func newStory(t *testing.T, instances ...string) *story {
	t.Helper()
	if len(instances) == 0 {
		instances = []string{"a", "b", "c"}
	}
	s := &story{world: newWorld(t, instances...), ids: map[string]snapshots.ID{}, numbers: map[string]string{}, told: map[string]int{}, pairs: map[string]pair{}, keys: map[string]*age.X25519Identity{}}
	s.certificate()
	return s
}

// goesOn returns the same story in another bubble of time.
func (s *story) goesOn(t *testing.T) *story {
	t.Helper()
	c := *s
	c.world = s.clone(t)
	c.watched, c.shown, c.ids, c.told = true, nil, maps.Clone(s.ids), maps.Clone(s.told)
	c.numbers, c.pairs = maps.Clone(s.numbers), maps.Clone(s.pairs)
	return &c
}

// tell runs the commands of a story, and returns the story with the results.
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
		wait := s.calm
		if words := strings.SplitN(line, " ", 3); words[0] == "within" {
			line, wait = words[2], func() { pass(s.duration(words[1])) }
		}
		for _, now := range append(s.command(line), s.newsAfter(wait)...) {
			fmt.Fprintf(&out, "\t%s\n", strings.ReplaceAll(now, "\n", "\n\t\t"))
		}
	}
	for _, p := range s.others {
		p.kill()
	}
	s.end()
	return out.Bytes()
}

var (
	instanceName = regexp.MustCompile(`^([a-f]|all)$`)
	otherPusher  = regexp.MustCompile(`^(second|third)$`)
)

// command carries out one command, and returns its output.
func (s *story) command(line string) []string {
	s.t.Helper()
	words := strings.Fields(line)
	verb, args := words[0], words[1:]
	arg := cmp.Or(strings.Join(args, " "), "")
	switch {
	case instanceName.MatchString(verb):
		s.instance(verb, args)
		return nil
	case otherPusher.MatchString(verb):
		s.do(verb, args)
		return nil
	case verb == "pin" && s.ids[arg].IsZero():
		s.ids[arg] = snapshots.ID{Revision: 77, Short: "0123456789"}
	}
	switch id := s.ids[arg]; verb {
	case "pusher":
		s.pusher(arg)
	case "terms":
		s.terms = true
	case "election":
		s.kept = &secret{}
		if len(args) > 0 {
			s.kept.kept = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "0"}, Data: map[string][]byte{"term": []byte(args[2])}}
		}
	case "state":
		if args[0] == "answers" {
			s.keeps.release()
		} else {
			s.keeps.hang(len(args) > 1)
		}
	case "wait":
		pass(s.duration(arg))
	case "set":
		s.set(args[0], s.duration(args[1]))
	case "policy":
		s.rollout = "  rollout: {" + arg + "}\n"
		s.writeFleet(slices.Sorted(maps.Keys(s.instances))...)
	case "fleet":
		s.ids[args[1]] = s.publishAs(args[1], args[2:])
		s.begin()
		s.calm()
		if now := s.view(); slices.Equal(now, []string{"good " + args[1] + ", wanted " + args[1], "a b c runs " + args[1] + ", serves [10.0.0.1], reloaded 1"}) {
			s.shown = now
		}
		s.ask("writes", "")
	case "identities":
		s.identities(args)
	case "publish":
		s.ids[args[0]] = s.publishAs(args[0], args[1:])
	case "pin", "unpin", "approve", "reject", "retry", "abort", "confirm":
		s.channel(func(c channel.Channel) channel.Channel { return s.say(c, verb, arg, id) })
	case "tidied":
		s.channel(func(c channel.Channel) channel.Channel { return c.NotOverridden() })
	case "override":
		o := channel.Override{Snapshot: s.ids[args[0]], By: "ann", Expires: time.Now().Add(s.duration(args[1]))}
		s.channel(func(c channel.Channel) channel.Channel { return c.Overridden(o) })
	case "store", "delete", "damage", "mend":
		s.storage(verb, arg)
	case "endpoints":
		if service := "web"; args[0] != "of" {
			s.served(service, args)
		} else {
			s.served(args[1], args[2:])
		}
	case "live":
		if arg == "none" {
			s.options.Live = "" // the pusher that begins next has none
		} else {
			s.manifest(args[0], strings.Join(args[1:], " "))
		}
	case "certificate":
		s.certificate(args...)
	case "edit", "term", "put", "remove", "forget", "copy", "post", "fail", "restart", "reload", "drain", "maint", "ready", "move":
		s.named(args[0]).ByHand(verb, args[1:])
	default:
		return s.ask(verb, arg)
	}
	return nil
}

// ask returns what a command shows.
func (s *story) ask(verb, arg string) []string {
	s.t.Helper()
	switch verb {
	case "writes":
		return s.each(func(name string, is memory.State) []string {
			news := is.Writes[s.told[name]:]
			s.told[name] = len(is.Writes)
			return news
		})
	case "files":
		return s.each(func(_ string, is memory.State) []string {
			return []string{fmt.Sprint("has ", slices.Sorted(maps.Keys(is.Files)))}
		})
	case "backends":
		b := s.seen().Backends
		out := []string{fmt.Sprintf("%d backends, %d without a server, %d of them failing", b.All, b.Empty, b.Failing)}
		for _, b := range b.List {
			out = append(out, fmt.Sprint(b.Backend, " ", b.Instances))
		}
		return out
	case "change":
		c, ok := s.seen().ChangeTo(s.ids[arg])
		return []string{fmt.Sprintf("known %v, from %s: %s", ok, cmp.Or(s.plain(c.From.String()), "nothing"), c)}
	case "metric":
		return s.metric(arg)
	case "routes":
		return s.each(func(_ string, is memory.State) []string { return []string{"routes " + is.Routes()} })
	case "certificates":
		return s.each(func(_ string, is memory.State) []string {
			number := s.numbers[fmt.Sprint(memory.LeafOf(is.Worker.Certificates["/etc/haproxy/ssl/shop_web-tls.pem"]).SerialNumber)]
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
	case "saved":
		times := 0
		s.must(filepath.WalkDir(filepath.Dir(s.options.State), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || entry.Name() == "fallback.pem" {
				return err
			}
			data, err := os.ReadFile(path)
			times += bytes.Count(data, []byte(arg))
			return err
		}))
		return []string{fmt.Sprintf("%d times", times)}
	case "log":
		return []string{fmt.Sprintf("%d times", strings.Count(s.plain(s.logged()), arg))}
	}
	s.t.Fatalf("%s is no command", verb)
	return nil
}

// each returns lines about each instance. Instances with the same lines share them.
func (s *story) each(say func(name string, is memory.State) []string) []string {
	var out []string
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		for _, line := range say(name, s.all[name].Now()) {
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
	case "begins", "takes over":
		s.options.TakeOver = does != "begins"
		s.begin()
	case "copies its state":
		data, err := os.ReadFile(s.options.State)
		s.must(err)
		s.copied = data
	case "goes back to its copy":
		s.must(wholefile.Replace(s.options.State, s.copied))
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

// publishAs publishes a snapshot whose configuration names its revision.
func (s *story) publishAs(revision string, with []string) snapshots.ID {
	s.t.Helper()
	d := draftTLS(revision)
	d.Files[1].Content = []byte("shop.example.com shop_" + revision + "\n")
	switch how := strings.Join(with, " "); {
	case how == "":
	case how == "without TLS":
		d.Files[2].Content, d.Certificates = []byte("certs/fallback.pem\n"), d.Certificates[:1]
	case with[0] == "exact" || with[0] == "sealed":
		s.fix(&d, with)
	case with[0] == "of": // the content of another snapshot, with other routes
		d = draftTLS(with[1])
		d.Files[1].Content = []byte(strings.ReplaceAll(strings.Join(with[3:], "\n"), "=", " ") + "\n")
	case with[0] == "recorded":
		recorded, err := snapshots.MarshalEndpoints(map[snapshots.ServicePort][]snapshots.Endpoint{
			{Namespace: "shop", Service: "web", Port: "http"}: {{Address: with[1], Port: 80}},
		})
		s.must(err)
		d.Files[2].Content, d.Certificates = []byte("certs/fallback.pem\n"), d.Certificates[:1]
		d.Files = append(d.Files, snapshots.File{Path: snapshots.EndpointsFile, Content: recorded})
	case with[0] == "with":
		for _, w := range with[1:] {
			backend, service, _ := strings.Cut(w, "=")
			d.Files[0].Content = fmt.Appendf(d.Files[0].Content, "backend %s\n    #hapsnap servers shop/%s:http\n", backend, service)
		}
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

// fix makes a snapshot name a version of its certificate, or contain the certificate encrypted to a
// key.
func (s *story) fix(d *snapshots.Draft, how []string) {
	s.t.Helper()
	of := s.pairs[how[1]]
	d.Certificates = slices.Clone(d.Certificates)
	d.Certificates[1].Mode, d.Certificates[1].Version = snapshots.ModeExact, of.version
	if how[0] == "sealed" {
		to, err := sealing.NewRecipients([]string{s.key(how[2]).Recipient().String()})
		s.must(err)
		sealed, err := to.Seal(of.data)
		s.must(err)
		d.Certificates[1].Mode, d.Recipients = snapshots.ModeSealed, to.Names()
		d.Files = append(d.Files, snapshots.File{Path: "certs/shop_web-tls.pem.age", Content: sealed})
	}
}

// key returns one of the keys that decrypt sealed certificates.
func (s *story) key(name string) *age.X25519Identity {
	s.t.Helper()
	if s.keys[name] == nil {
		key, err := age.GenerateX25519Identity()
		s.must(err)
		s.keys[name] = key
	}
	return s.keys[name]
}

func (s *story) identities(names []string) {
	s.t.Helper()
	if s.options.Identity = ""; names[0] == "none" {
		return
	}
	s.options.Identity = filepath.Join(s.dir, "identity.txt")
	text := ""
	for _, name := range names {
		text += s.key(name).String() + "\n"
	}
	s.write("identity.txt", text)
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

// storage changes the store.
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

// served sets the endpoints of a Service.
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

// manifest changes a file of live objects.
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

// certificate writes a new certificate to the Secret shop/web-tls.
func (s *story) certificate(args ...string) {
	s.t.Helper()
	end, edit := time.Now().AddDate(1, 0, 0), func(crt, key []byte) ([]byte, []byte) { return crt, key }
	switch {
	case len(args) == 2 && args[0] == "for":
		end = time.Now().Add(s.duration(args[1]))
	case len(args) == 2:
		edit = func(crt, _ []byte) ([]byte, []byte) { return crt, []byte("none") }
	}
	number := strconv.Itoa(len(s.numbers) + 1)
	s.numbers[s.secretUntil(end, func(crt, key []byte) ([]byte, []byte) {
		data := slices.Concat(crt, key)
		version, err := pem.Version(data)
		s.must(err)
		s.pairs[number] = pair{data, version}
		return edit(crt, key)
	})] = number
}

// instance changes an instance.
func (s *story) instance(name string, words []string) {
	s.t.Helper()
	if name == "all" {
		for name := range s.instances {
			s.instance(name, words)
		}
		return
	}
	switch words[0] {
	case "joins":
		s.join(name)
	case "leaves":
		s.leave(name)
	default:
		s.must(s.named(name).Befall(words))
	}
}

// metric returns the counts of a histogram of the pusher, by its first label.
func (s *story) metric(name string) (out []string) {
	s.t.Helper()
	all, err := s.options.Metrics.(*prometheus.Registry).Gather()
	s.must(err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				out = append(out, fmt.Sprintf("%s: %d", m.GetLabel()[0].GetValue(), m.GetHistogram().GetSampleCount()))
			}
		}
	}
	return out
}

// look is the time between two looks at a story. It is calm if nothing has changed for calmFor, or
// for waits during a rollout.
const (
	look    = 2 * time.Second
	calmFor = 16 * time.Second
	waits   = 3 * time.Minute // the same, in a rollout
	longest = time.Hour
)

// calm waits until nothing has changed for a while, or the pusher was killed. A rollout may still
// wait for something.
func (s *story) calm() {
	s.t.Helper()
	var last []string
	quiet := time.Duration(0)
	long := calmFor
	for began := time.Now(); quiet < long && (s.life == nil || !s.life.dead()); pass(look) {
		now := s.view()
		if long = calmFor; s.rolling() {
			long = waits
		}
		for _, name := range slices.Sorted(maps.Keys(s.instances)) {
			now = append(now, fmt.Sprint(len(s.instances[name].Now().Writes)))
		}
		if slices.Equal(now, last) {
			quiet += look
		} else if last, quiet = now, 0; time.Since(began) > longest {
			s.t.Fatalf("it does not come to rest: %q", now)
		}
	}
}

// news returns what has changed for a person, once all is calm.
func (s *story) news() []string { return s.newsAfter(s.calm) }

func (s *story) newsAfter(wait func()) []string {
	s.t.Helper()
	if s.life == nil && len(s.others) == 0 {
		return nil
	}
	wait()
	before, out := s.shown, []string(nil)
	s.shown = s.view()
	for _, line := range s.shown {
		if !slices.Contains(before, line) {
			out = append(out, line)
		}
	}
	for _, line := range before {
		// For other lines a new one replaces the old, so that needs no line of its own.
		if !slices.Contains(s.shown, line) && lasting.MatchString(line) {
			out = append(out, "no longer "+line)
		}
	}
	return out
}

var lasting = regexp.MustCompile(`^(\w+: )?(trouble|rejected|rollout|the fleet is) `)

// view returns what a person can see, as lines.
func (s *story) view() []string {
	status, out := s.seen(), []string(nil)
	if s.life != nil {
		out = s.heads(status)
	}
	out = append(out, s.othersView()...)
	return append(out, s.each(func(name string, is memory.State) []string { return []string{s.viewOf(statusOf(status, name), is)} })...)
}

// heads returns what a pusher reports about the fleet.
func (s *story) heads(status report.Status) []string {
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
	if p := status.Condition().Phase; p == report.Degraded {
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
	return out
}

// viewOf returns what an instance runs.
func (s *story) viewOf(status report.Instance, is memory.State) string {
	id, _, _ := strings.Cut(is.Worker.Node, "_")
	out := fmt.Sprintf("runs %s, ", s.plain(id))
	if running := s.plain(status.Running.String()); status.Loaded != "" {
		out = fmt.Sprintf("runs %s as %s, ", s.plain(id), running)
	}
	switch {
	case s.life == nil:
		return out + fmt.Sprintf("serves %v, reloaded %d%s", is.Worker.Ready("shop_web"), is.Reloads, termOf(is.Disk))
	case status.Name == "":
		return "has left, and runs " + s.plain(id)
	}
	if !status.InSync {
		out += "not in sync, "
	}
	if status.LedBy != "" {
		out += "led by another, "
	}
	if status.Refused {
		out += "refused for " + status.Error + ", "
	} else if !status.Reachable {
		out += "out of reach, "
	}
	if status.Foreign != "" {
		out += "from another configuration, "
	}
	out += fmt.Sprintf("serves %v, reloaded %d", is.Worker.Ready("shop_web"), is.Reloads)
	if !strings.HasPrefix(is.Disk, fmt.Sprintf("# _version=%d\n", is.Memory)) {
		out += ", its disk is not what its API has"
	}
	if status.Conflict != nil {
		out += ", in conflict: " + s.plain(status.Error)
	}
	for _, d := range status.ManualDrains {
		out += ", " + d.Server + " is drained by hand"
	}
	return out
}

var termLine = regexp.MustCompile(`(?m)^# hapsnap term (\d+)$`)

// termOf returns what a file says about the term in which it was written.
func termOf(file string) string {
	out := ""
	for _, m := range termLine.FindAllStringSubmatch(file, -1) {
		out += ", in term " + m[1]
	}
	return out
}

// plain replaces snapshots by their revisions, and everything that differs each time.
func (s *story) plain(text string) string {
	for revision, id := range s.ids {
		text = strings.ReplaceAll(text, id.String(), revision)
	}
	for serial, number := range s.numbers {
		text = strings.ReplaceAll(text, serial, "of number "+number)
	}
	for name, key := range s.keys {
		text = strings.ReplaceAll(text, key.Recipient().String(), "key "+name)
	}
	for number, of := range s.pairs {
		text = strings.ReplaceAll(text, of.version[:10], "of number "+number)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, s.dir, "$DIR"), "file:"+hostname()+":", "")
	text = wroteForm.ReplaceAllString(text, "which wrote it at TIME on HOST")
	return digestForm.ReplaceAllString(text, "DIGEST")
}

var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	return name
})

// digestForm matches digests, names of losses to be confirmed, and IDs of states.
var digestForm = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{16}|[0-9a-f]{8})\b`)

// wroteForm matches the time and place at which another pusher wrote.
var wroteForm = regexp.MustCompile(`which wrote it at [0-9TZ:-]+ on [^;\s]+`)
