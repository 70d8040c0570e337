package ui

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// largeFleet is a status of n instances in three zones. One in ten is unreachable.
func largeFleet(n int) report.Status {
	s := oneInstance()
	s.Updated, s.Instances = time.Now(), nil
	for i := range n {
		s.Instances = append(s.Instances, report.Instance{Name: fmt.Sprintf("edge-%d", i+1), Zone: string(rune('a' + i%3)), Reachable: i%10 != 0, InSync: i%10 != 0, Since: noon})
	}
	return s
}

// largeSnapshot has n routes, two for each host. Each has a backend of its own.
func largeSnapshot(n int) snapshots.Snapshot {
	config, hosts, prefixes := strings.Builder{}, strings.Builder{}, strings.Builder{}
	config.WriteString(shopConfiguration)
	for i := range n {
		host := fmt.Sprintf("app-%06d.example", i/2*2)
		if i%2 == 0 {
			fmt.Fprintf(&hosts, "%s %s\n", host, host)
		}
		fmt.Fprintf(&prefixes, "%s|/%d/ team_app-%d\n", host, i%2, i)
		fmt.Fprintf(&config, "\nbackend team_app-%d from main\n    timeout server 45s\n    #hapsnap servers team/app-%d:http\n", i, i)
	}
	return snapshots.Draft{Files: []snapshots.File{
		{Path: "files/https.crtlist", Content: []byte("certs/fallback.pem !*\n")}, {Path: snapshots.ConfigFile, Content: []byte(config.String())},
		{Path: "maps/exact.map", Content: []byte("")}, {Path: "maps/host.map", Content: []byte(hosts.String())}, {Path: "maps/prefix.map", Content: []byte(prefixes.String())},
	}}.Number(1, snapshots.ID{})
}

// A page shows a limited number of instances or routes, and links to the others.
func TestLargeListsArePaged(t *testing.T) {
	t.Parallel()
	s := largeSnapshot(5_000)
	status := largeFleet(1000)
	status.Good = s.ID()
	h := server(t, Source{Fleet: func() Fleet { return Fleet{Status: status, At: status.Updated} }, Store: storeOf(s)}).Handler()
	_, first := get(t, h, "/")
	if n := strings.Count(first, `class="cell `); n != cellsPerPage || !strings.Contains(first, "page 1 of 5, 1000 instances, the worst first") || !strings.Contains(first, "100 unreachable") {
		t.Errorf("%d cells: %s", n, plainText(first))
	}
	if !strings.Contains(first, `"/instances/edge-991"`) || strings.Contains(first, `"/instances/edge-999"`) {
		t.Error("the worst are not the first")
	}
	if _, last := get(t, h, "/?page=5"); strings.Count(last, `class="cell `) != cellsPerPage || !strings.Contains(last, `"/instances/edge-999"`) {
		t.Errorf("the last page: %s", plainText(last))
	}
	_, routes := get(t, h, "/routes?page=3")
	if n := strings.Count(routes, "<tr>"); n != pageSize+1 || !strings.Contains(routes, "page 3 of 50") || len(routes) > 200_000 {
		t.Errorf("%d rows in %d bytes", n, len(routes))
	}
	if _, found := get(t, h, "/routes?q=app-004998.example"); strings.Count(found, "<tr>") != 3 {
		t.Errorf("of one host: %s", plainText(found))
	}
}

// BenchmarkFleetOf1000 measures the page of a fleet of 1,000 instances.
func BenchmarkFleetOf1000(b *testing.B) {
	status := largeFleet(1000)
	benchmarkPage(b, Source{Fleet: func() Fleet { return Fleet{Status: status, At: status.Updated} }, Store: &fakeStore{}}, "/")
}

// BenchmarkRoutesOf100000 measures pages of 100,000 routes: the first one, and later ones of the same snapshot.
func BenchmarkRoutesOf100000(b *testing.B) {
	s := largeSnapshot(100_000)
	status := largeFleet(3)
	status.Good = s.ID()
	source := Source{Fleet: func() Fleet { return Fleet{Status: status, At: status.Updated} }, Store: storeOf(s)}
	for name, page := range map[string]string{"page": "/routes?page=700", "filter": "/routes?q=app-0777", "sorted": "/routes?sort=-service", "answer": "/routes?host=app-077776.example&path=/1/x&scheme=http"} {
		b.Run(name, func(b *testing.B) { benchmarkPage(b, source, page) })
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			h := New(b.Context(), Options{Source: source, Log: quiet}).Handler()
			answerOf200(b, h, "/routes")
		}
	})
}

func benchmarkPage(b *testing.B, source Source, page string) {
	b.Helper()
	h := New(b.Context(), Options{Source: source, Log: quiet}).Handler()
	answerOf200(b, h, page)
	for b.Loop() {
		answerOf200(b, h, page)
	}
}

func answerOf200(b *testing.B, h http.Handler, page string) {
	b.Helper()
	r, w := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://localhost"+page, nil), httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK {
		b.Fatalf("%d: %s", w.Code, w.Body)
	}
}

// BenchmarkHundredViewers lets 100 viewers follow a fleet of 1,000 instances with changes. It reports how long it
// takes until all viewers have a change, the processor time for that, and the memory for each viewer.
func BenchmarkHundredViewers(b *testing.B) {
	const viewers = 100
	latest := NewLatest()
	latest.Set(Fleet{Status: largeFleet(1000)})
	s := httptest.NewServer(New(b.Context(), Options{Source: Source{Fleet: latest.Fleet, Follow: latest.Follow, Store: &fakeStore{}}, Log: quiet}).Handler())
	defer s.Close()
	before := heap()
	var had [viewers]atomic.Int64 // the last change of each viewer
	ctx, end := context.WithCancel(b.Context())
	defer end()
	for i := range viewers {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/events?page=/", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			defer answer.Body.Close()
			lines := bufio.NewScanner(answer.Body)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				if _, text, ok := strings.Cut(lines.Text(), "change-"); ok {
					var n int64
					_, _ = fmt.Sscanf(text, "%d.", &n) // the text has this form
					had[i].Store(n)
				}
			}
		}()
	}
	began, used := time.Now(), processorTime()
	changes := int64(0)
	for b.Loop() {
		changes++
		status := largeFleet(1000)
		status.Channel.Message, status.Instances[0].Error = fmt.Sprintf("change-%d.", changes), fmt.Sprintf("change-%d.", changes)
		status.Leader = fmt.Sprintf("change-%d.", changes)
		latest.Set(Fleet{Status: status})
		for i := range had {
			for sent := time.Now(); had[i].Load() < changes; <-time.After(time.Millisecond) {
				if time.Since(sent) > generous {
					b.Fatalf("viewer %d waits for change %d", i, changes)
				}
			}
		}
	}
	b.ReportMetric(float64(heap()-before)/viewers/1024, "KiB/viewer")
	b.ReportMetric(100*(processorTime()-used).Seconds()/time.Since(began).Seconds(), "%cpu")
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse) //nolint:gosec // it is memory
}

// processorTime is the processor time of this process so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // the process asks about itself, which cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
