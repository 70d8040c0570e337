package fleet

import (
	"os"
	"strings"
	"testing"
)

// The example in the documentation has every field, and can be read.
func TestDocumentedFleetIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	f, err := Read(write(t, example))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Instances) != 1 || len(f.Rollout.Waves) != 3 || f.Rollout.Soak == nil || f.Rollout.Budget == nil || f.Rollout.Gate == nil || len(f.Rollout.Blackouts) != 2 {
		t.Errorf("the example is read as %+v", f)
	}
}
