package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/difference"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	want := "--- a/haproxy.cfg\t" + ids[0].String() + "\n+++ b/haproxy.cfg\t" + ids[2].String() + "\n@@ -1,1 +1,1 @@\n-# one\n+# three\n"
	expect(t, want+"reload: haproxy.cfg:1: +# three\n", "diff", "r1", ids[2].String(), "--store", url)
	expect(t, "nothing\n", "diff", "r1", "1", "--store", url, "--exit-code")
	code, out, _ := pusherCommand(t, "diff", "r2", "r1", "--store", url, "--exit-code", "-o", "json")
	var r difference.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != differ || r.A != ids[1].String() || r.Verdict != "reload" || len(r.Files) != 1 || r.Decides.Text != "# one" {
		t.Errorf("exit code %d, printed %s: %v", code, out, err)
	}
	if code, _, errs := pusherCommand(t, "diff", "r1", "r4", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "holds no snapshot r4") {
		t.Errorf("exit code %d, said %s", code, errs)
	}
	damage(t, strings.TrimPrefix(url, "dir:"), ids[1])
	if code, out, errs := pusherCommand(t, "diff", "r1", "r2", "--store", url); code != process.ExitInvalid || out != "" || !strings.Contains(errs, "snapshot is corrupt") {
		t.Errorf("exit code %d, printed %s, said %s", code, out, errs)
	}
}
