package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
)

// origin is the source of objects.
type origin string

func (p origin) String() string { return string(p) }

// contest is a store with several compilers that publish to it, on a clock of the test.
type contest struct {
	now  time.Time
	head snapshots.Snapshot
}

// contestant is a compiler, with or without an election.
type contestant struct {
	rivals
	inputs []snapshots.Input
}

func (c *contest) start(p origin, machine string, elected bool, uids ...string) *contestant {
	c.now = c.now.Add(time.Second)
	k := &contestant{rivals: rivals{own: newMark(p, c.now)}}
	k.own.machine, k.own.configuration = machine, configurationDigest(config.Default())
	k.term(elected)
	for _, uid := range uids {
		k.inputs = append(k.inputs, snapshots.Input{Kind: "Ingress", UID: uid})
	}
	return k
}

// turn makes a compiler look at the store, and publish a number of backends unless it yields.
func (c *contest) turn(k *contestant, count int) (published bool) {
	c.now = c.now.Add(time.Second)
	if until := k.until(); !until.IsZero() && !c.now.Before(until) {
		k.current = nil
	}
	k.observe(c.head, k.inputs, c.now)
	if k.current != nil && k.current.Yields {
		return false
	}
	k.ours = c.write(k.own.trigger("change"), k.inputs, count)
	return true
}

// write publishes, whichever compiler leads.
func (c *contest) write(trigger string, inputs []snapshots.Input, count int) snapshots.ID {
	draft := backends(count)
	draft.Provenance = snapshots.Provenance{Trigger: trigger, Inputs: inputs}
	c.head = draft.Number(c.head.ID().Revision+1, c.head.ID())
	return c.head.ID()
}

// Of two compilers without an election, the one that was added stops after the other has replaced its snapshots
// twice. Each names the other.
func TestTheSecondOfTwoCompilersStops(t *testing.T) {
	t.Parallel()
	c := &contest{now: time.Now()}
	first := c.start("one", "host-a", false)
	c.turn(first, 1)
	second := c.start("two", "host-b", false)
	for n, step := range []struct {
		of                   *contestant
		published, says, end bool
	}{
		{second, true, false, false}, // it cannot know whether the first one runs
		{first, true, true, false},   // it replaces the snapshot at once
		{second, true, true, false},
		{first, true, true, false},
		{second, false, true, true},
		{first, true, true, false},
		{second, false, true, true},
	} {
		if got := c.turn(step.of, 10+n); got != step.published || (step.of.current != nil) != step.says || (step.of.current != nil && step.of.current.Yields) != step.end {
			t.Fatalf("step %d: published %v, %+v", n, got, step.of.current)
		}
	}
	if r := second.current; r.Machine != "host-a" || r.Objects != "one" || !r.Same || r.Snapshot != c.head.ID() || r.Run != first.own.run {
		t.Errorf("the second one names %+v", r)
	}
	if r := first.current; r.Machine != "host-b" || r.Objects != "two" || r.Yields {
		t.Errorf("the first one names %+v", r)
	}

	// The first one may be gone. After an hour without a snapshot of the first, the second one continues. If
	// the first one still runs, the second notices that at once.
	c.now = c.now.Add(rivalQuiet)
	if !c.turn(second, 30) || second.current != nil {
		t.Errorf("the other one is quiet: %+v", second.current)
	}
	c.turn(first, 31)
	if c.turn(second, 32) {
		t.Error("the second one published over a compiler that it knows")
	}

	// After a restart, the first compiler still counts as the first.
	again := c.start("one", "host-a", false)
	c.turn(again, 40)
	if !again.own.before(second.own) || !again.own.began.Equal(first.own.began) {
		t.Errorf("after a restart it began %s, and the second one %s", again.own.began, second.own.began)
	}
	if c.turn(second, 41) {
		t.Error("the second one published over the one that was restarted")
	}
}

// Another process at the same place may be the one that replaces this one. If this one still runs at the next look, two
// publish, also where this one has nothing new to publish.
func TestAProcessAtTheSamePlaceThatStays(t *testing.T) {
	t.Parallel()
	for _, elected := range []bool{false, true} {
		c := &contest{now: time.Now()}
		first := c.start("one", "host-a", elected, "1")
		c.turn(first, 1)
		second := c.start("one", "host-a", elected, "1")
		second.own.configuration = "0123456789"
		c.turn(second, 2)
		if first.observe(c.head, first.inputs, c.now) || first.current != nil || first.stillRuns(c.head.ID(), c.now) {
			t.Errorf("%+v is reported at once", first.current)
		}
		c.now = c.now.Add(headInterval)
		if first.stillRuns(first.ours, c.now) {
			t.Error("a snapshot that is not the newest is reported")
		}
		told := first.stillRuns(c.head.ID(), c.now)
		if told == elected || told && (first.current.Same || first.current.Yields || first.current.Run != second.own.run) || first.stillRuns(c.head.ID(), c.now) {
			t.Errorf("with a Lease %v: told %v, %+v", elected, told, first.current)
		}
	}
}

// Something that is not a second compiler stops nothing, and is not reported as one.
func TestWhatIsNoSecondCompiler(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(c *contest) *contestant{
		"a person publishes by hand, again and again": func(c *contest) *contestant {
			k := c.start("one", "host-a", false)
			for n := range 3 {
				c.turn(k, 2*n+1)
				c.write("render", nil, 2*n+2)
			}
			return k
		},
		"what a former leader sent arrives late": func(c *contest) *contestant {
			old := c.start("cluster", "pod-a", true, "1", "2")
			c.turn(old, 1)
			k := c.start("cluster", "pod-b", true, "2", "3")
			c.turn(k, 2)
			c.write(old.own.trigger("change"), old.inputs, 3)
			return k
		},
		"two replicas take turns in leading": func(c *contest) *contestant {
			k, other := c.start("cluster", "pod-a", true, "1"), c.start("cluster", "pod-b", true, "1")
			for n := range 4 {
				k.term(true)
				c.turn(k, 2*n+1)
				other.term(true)
				c.turn(other, 2*n+2)
			}
			k.term(true)
			return k
		},
		"a rolling update with another configuration": func(c *contest) *contestant {
			old := c.start("cluster", "pod-a", true, "1")
			c.turn(old, 1)
			k := c.start("cluster", "pod-b", true, "1")
			k.own.configuration = "0123456789"
			c.turn(k, 2)
			c.write(old.own.trigger("change"), old.inputs, 3)
			return k
		},
		"the same content": func(c *contest) *contestant {
			k, other := c.start("one", "host-a", false), c.start("two", "host-b", false)
			for range 3 {
				c.turn(k, 1)
				c.turn(other, 1)
			}
			return k
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &contest{now: time.Now()}
			k := test(c)
			if !c.turn(k, 50) || k.current != nil {
				t.Errorf("it says %+v", k.current)
			}
		})
	}
}

// Two clusters that have the same name inside are two places.
func TestTwoClustersOfOneName(t *testing.T) {
	t.Parallel()
	c := &contest{now: time.Now()}
	first := c.start("cluster", "pod-a", true, "1")
	c.turn(first, 1)
	second := c.start("cluster", "pod-b", true, "2")
	c.turn(second, 2)
	c.turn(first, 3)
	if first.current == nil || !first.own.before(second.own) {
		t.Errorf("it says %+v", first.current)
	}
}

// A mark is read as it was written, and nothing else counts as one.
func TestMarks(t *testing.T) {
	t.Parallel()
	for _, objects := range []origin{"manifests", "https://10.96.0.1:443", "a; compiler of b, on c", ""} {
		m := newMark(objects, time.Now())
		m.configuration = configurationDigest(config.Default())
		if got, ok := parseMark(m.trigger("start")); !ok || got != m {
			t.Errorf("%q is read as %+v, %v", m.trigger("start"), got, ok)
		}
	}
	for _, text := range []string{"", "start", "render", "Ingress shop/web", "change; compiler 0123456789ab since yesterday, configuration 0123456789, on a, of b"} {
		if got, ok := parseMark(text); ok {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
	other := config.Default()
	other.HTTP.Port = 81
	if a, b := configurationDigest(config.Default()), configurationDigest(other); a == b || len(a) != 10 {
		t.Errorf("the digests are %s and %s", a, b)
	}
}

// The text says who the other compiler is, and that this one publishes nothing.
func TestRivalText(t *testing.T) {
	t.Parallel()
	r := RivalReport{Machine: "host-a", Objects: "one", Configuration: "0123456789", Snapshot: snapshots.ID{Revision: 3, Short: "9876543210"}, Yields: true, Until: time.Unix(0, 0)}
	const want = "another compiler publishes to this store: it runs on host-a with the objects of one and another configuration, 0123456789, and made r000003-9876543210; it was there first, so this one publishes nothing until 1970-01-01T00:00:00Z"
	if got := fmt.Sprint(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
