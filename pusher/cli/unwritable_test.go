package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// A status that is not written until a person changes something is a trouble of the pusher: who reads the old one takes it for true.
func TestStatusThatAPersonHasToMend(t *testing.T) {
	t.Parallel()
	for hint, err := range map[string]error{
		"--status":           configmapstore.OtherWriterError{By: "another"},
		"pusher rbac prints": fmt.Errorf("%w: forbidden", configmapstore.ErrStatusDenied),
		"":                   errors.New("the API server is away"),
	} {
		got := hintedStatus(fmt.Errorf("write the status: %w", err))
		if _, is := errors.AsType[report.UnwritableError](got); is != (hint != "") || !strings.Contains(got.Error(), hint) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
