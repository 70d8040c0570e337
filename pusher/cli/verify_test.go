package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	path := strings.TrimPrefix(url, "dir:")
	if code, out, errs := pusherCommand(t, "verify", "--store", url); code != process.ExitOK || out != "3 of 3 snapshots are as their digests say\n" {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	damage(t, path, ids[0])
	damage(t, path, ids[1])
	code, out, errs := pusherCommand(t, "verify", "--store", url)
	lines := strings.Split(out, "\n")
	if code != process.ExitInvalid || errs != "" || len(lines) != 4 || lines[2] != "1 of 3 snapshots are as their digests say" ||
		!strings.Contains(lines[0], ids[0].String()) || !strings.Contains(lines[1], ids[1].String()+": snapshot is corrupt: haproxy.cfg has 9 bytes, more than the ") {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	code, out, _ = pusherCommand(t, "verify", "--store", url, "-o", "json")
	var v verification
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != process.ExitInvalid || v.Snapshots != 3 || len(v.Failed) != 2 || !v.Failed[0].Damaged {
		t.Errorf("exit code %d, printed %s: %v", code, out, err)
	}
}

// shelf is a store of which some snapshots cannot be had.
type shelf struct {
	stores.Reader
	ids     [][]snapshots.ID // what is there, one list after the other
	trouble map[snapshots.ID]error
}

func (s *shelf) IDs(context.Context) ([]snapshots.ID, error) {
	ids := s.ids[0]
	if len(s.ids) > 1 {
		s.ids = s.ids[1:]
	}
	return ids, nil
}

func (s *shelf) Get(_ context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	return snapshots.Snapshot{}, s.trouble[id]
}

func TestVerifyTellsDamageFromTrouble(t *testing.T) {
	t.Parallel()
	a, b := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	both, one := []snapshots.ID{a, b}, []snapshots.ID{b}
	for name, c := range map[string]struct {
		store  *shelf
		code   int
		read   int
		failed int
	}{
		"both are good":              {&shelf{ids: [][]snapshots.ID{both}}, process.ExitOK, 2, 0},
		"one is out of reach":        {&shelf{ids: [][]snapshots.ID{both}, trouble: map[snapshots.ID]error{a: errors.New("refused")}}, process.ExitFailure, 2, 1},
		"one is damaged, one is not": {&shelf{ids: [][]snapshots.ID{both}, trouble: map[snapshots.ID]error{a: errors.New("refused"), b: snapshots.ErrCorrupt}}, process.ExitInvalid, 2, 2},
		"one was deleted meanwhile":  {&shelf{ids: [][]snapshots.ID{both, one}, trouble: map[snapshots.ID]error{a: snapshots.ErrNotFound}}, process.ExitOK, 1, 0},
		"one is listed, and is not":  {&shelf{ids: [][]snapshots.ID{both}, trouble: map[snapshots.ID]error{a: snapshots.ErrNotFound}}, process.ExitFailure, 2, 1},
		"there is none":              {&shelf{ids: [][]snapshots.ID{nil}}, process.ExitOK, 0, 0},
	} {
		v, err := verify(t.Context(), c.store)
		if code := process.Code(t.Context(), v.exit()); err != nil || code != c.code || v.Snapshots != c.read || len(v.Failed) != c.failed {
			t.Errorf("%s: %+v, exit code %d: %v", name, v, code, err)
		}
	}
}
