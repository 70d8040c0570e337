package dataplanetest

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
)

// check runs haproxy -c on a file and puts what it says into the API's words.
func (h *haproxy) check(ctx context.Context, file, heading string) error {
	// A client that leaves does not end what it began.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), h.binary, "-W", "-f", file, "-c")
	cmd.Env = h.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return failf(http.StatusBadRequest, "validation error: %s: %s", err, heading+alerts(stderr.String()))
	}
	return nil
}

// alerts keeps the alerts of HAProxy's output, one a line, and drops the rest:
// warnings never reach the API's clients.
func alerts(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "[ALERT]") {
			continue
		}
		if _, text, found := strings.Cut(line, " : "); found {
			text = strings.ReplaceAll(text, " : ", " ")
			lines = append(lines, fmt.Sprintf("msg=\"%s\"", strings.TrimSpace(text)))
		}
	}
	return strings.Join(lines, "\n")
}
