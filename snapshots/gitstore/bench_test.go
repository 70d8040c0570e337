package gitstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// BenchmarkPublish publishes versions of a configuration of 2.5 MB. Run with
// -benchtime=1000x, it shows what the thousandth costs, and next to it what the
// tenth did.
func BenchmarkPublish(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "edge.git")
	if out, err := exec.CommandContext(b.Context(), "git", "init", "--quiet", "--bare", path).CombinedOutput(); err != nil {
		b.Fatalf("git init: %v\n%s", err, out)
	}
	s, err := Open(Options{URL: path, Branch: "edge", CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	var memory []float64
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		draft := storetest.Draft("web")
		draft.Files[0].Content = config(2_500_000, i)
		b.StartTimer()
		started := time.Now()
		if _, published, err := s.Publish(b.Context(), draft); err != nil || !published {
			b.Fatalf("published %v, %v", published, err)
		}
		took = append(took, time.Since(started))
		memory = append(memory, residentMB(b))
	}
	if n := len(took); n >= 40 {
		b.ReportMetric(median(took[10:30]).Seconds()*1000, "10th-ms")
		b.ReportMetric(median(took[n-20:]).Seconds()*1000, "last-ms")
		b.ReportMetric(slices.Max(memory[:30]), "10th-RSS-MB")
		b.ReportMetric(memory[n-1], "last-RSS-MB")
	}
}

func median(d []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

// residentMB returns the memory that this process occupies.
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

// config returns a configuration of about the given size, the i-th version of
// which differs from the others in one backend.
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
