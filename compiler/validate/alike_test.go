package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
)

// The same mistake in many backends is found in all of them at once, and in no others, although HAProxy stops
// at the first one.
func TestOneMistakeOfManyBackends(t *testing.T) {
	t.Parallel()
	check := find(t)
	var config strings.Builder
	config.WriteString("global\ndefaults main\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nfrontend f from main\n    bind unix@f.sock\n")
	for i := range 40 {
		line := "http-request deny"
		switch i % 4 {
		case 1:
			line = "http-request frobnicate"
		case 2:
			line = "id 4711" // only one backend may have it
		}
		fmt.Fprintf(&config, "backend b%d from main\n    %s\n    #hapsnap servers shop/web-%d:http -- maxconn 10\n", i, line, i)
	}
	// Another backend has the same mistake among other lines.
	config.WriteString("backend other from main\n    option httpchk\n    http-request frobnicate\n    #hapsnap servers shop/other:http\n")
	files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config.String())}}
	lines := strings.Split(config.String(), "\n")
	refused := map[string]int{}
	for round := 1; ; round++ {
		verdict, err := check.Check(t.Context(), validate.Input{Artifact: render.Artifact{Files: files}})
		if err != nil {
			t.Fatal(err)
		}
		if len(verdict.Faults) == 0 {
			break
		}
		if round > 10 {
			t.Fatalf("after %d checks there still is %+v", round, verdict.Faults[0])
		}
		for _, f := range verdict.Faults {
			if f.Text != strings.TrimSpace(lines[f.Line-1]) || !strings.Contains(f.Message, "haproxy: ") {
				t.Errorf("%+v is not on its line", f)
			}
			refused[f.Text]++
			lines[f.Line-1] = "    # taken out"
		}
		files[0].Content = []byte(strings.Join(lines, "\n"))
	}
	if refused["http-request frobnicate"] != 11 || refused["id 4711"] != 9 || len(refused) != 2 {
		t.Errorf("refused: %v; want what 11 backends have, and 9 of 10 ids", refused)
	}
	if first := slices.Index(lines, "    id 4711"); first < 0 || lines[first-1] != "backend b2 from main" {
		t.Error("the first backend with the id lost it")
	}
}
