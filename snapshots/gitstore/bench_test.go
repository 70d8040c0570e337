package gitstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// BenchmarkPublish publishes versions of a configuration of 2.5 MB on histories of several lengths, of which the cost
// should not depend.
func BenchmarkPublish(b *testing.B) {
	for _, test := range []struct{ after, kept int }{{10, 10}, {1000, 100}, {1000, 1000}} {
		b.Run(fmt.Sprintf("after=%d/kept=%d", test.after, test.kept), func(b *testing.B) {
			s := history(b, test.after, test.kept)
			i := 0
			for b.Loop() {
				i++
				draft := storetest.Draft("web")
				draft.Files[0].Content = config(2_500_000, i)
				if _, published, err := s.Publish(b.Context(), draft); err != nil || !published {
					b.Fatalf("published %v, %v", published, err)
				}
			}
			b.ReportMetric(residentMB(b), "RSS-MB")
		})
	}
}

// BenchmarkView polls a repository without changes.
func BenchmarkView(b *testing.B) {
	for _, kept := range []int{10, 1000} {
		b.Run(fmt.Sprintf("kept=%d", kept), func(b *testing.B) {
			s := history(b, kept, kept)
			for b.Loop() {
				if _, err := s.View(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// history returns a store in which small snapshots were published. The newest ones are kept.
func history(b *testing.B, published, kept int) *Store {
	b.Helper()
	dir := b.TempDir()
	path := filepath.Join(dir, "edge.git")
	if out, err := exec.CommandContext(b.Context(), "git", "init", "--quiet", "--bare", path).CombinedOutput(); err != nil {
		b.Fatalf("git init: %v\n%s", err, out)
	}
	s, err := Open(Options{URL: path, Branch: "edge", CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		b.Fatal(err)
	}
	var ids []snapshots.ID
	for i := range published {
		id, _, err := s.Publish(b.Context(), storetest.Draft(fmt.Sprintf("web%d", i)))
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := s.Delete(b.Context(), ids[:published-kept]...); err != nil {
		b.Fatal(err)
	}
	return s
}

// residentMB returns the resident memory of this process.
func residentMB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	var kB float64
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscanf(after, "%f", &kB); err != nil {
		b.Fatal(err)
	}
	return kB / 1024
}

// config returns a configuration of about this size. The i-th version differs from the others in one backend.
func config(size, i int) []byte {
	var b strings.Builder
	random := rand.New(rand.NewPCG(7, 7))
	for n := 0; b.Len() < size; n++ {
		version := 0
		if n == 100+i%1000 {
			version = i
		}
		fmt.Fprintf(&b, "backend ns%d_service-%x_%d\n    balance roundrobin\n    default-server check inter 5s\n"+
			"    #hapsnap servers ns%d/service-%d:http weight=90\n    http-request set-header X-Version %d\n\n",
			n%50, random.Uint32(), random.Uint32N(65536), n%50, n, version)
	}
	return []byte(b.String())
}
