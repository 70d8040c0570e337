// Package notify posts to a webhook what happens to rollouts. It sends notices one after
// another, in order, and repeats one that the receiver cannot take. The pusher never waits
// for it.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// Event is what a notice is about.
type Event string

// The events.
const (
	RolloutBegins Event = "rollout_begins"
	RolloutDone   Event = "rollout_done"
	RolloutFailed Event = "rollout_failed" // it is being undone
	RolloutUndone Event = "rollout_undone"
	RolloutPaused Event = "rollout_paused"  // others fail as well
	RolloutGoesOn Event = "rollout_goes_on" // after that
	RepairsStop   Event = "repairs_stop"    // somebody else keeps undoing them
	RepairsGoOn   Event = "repairs_go_on"
	Trouble       Event = "trouble" // for a minute
	TroubleOver   Event = "trouble_over"
)

// Notice is one message. It is posted as JSON, with the text under the name that chat services read. What they would take
// for markup in it is posted as plain text.
type Notice struct {
	Event    Event     `json:"event"`
	Text     string    `json:"text"`
	Time     time.Time `json:"time"`
	Snapshot string    `json:"snapshot,omitempty"`
	Instance string    `json:"instance,omitempty"`
}

// markup replaces what chat services read as mentions and links, such as <!channel>, @everyone, and a text in brackets with
// its address behind it or in a line of its own.
var markup = strings.NewReplacer("<", "‹", ">", "›", "@", "@\u200b", "](", "]\u200b(", "]:", "]\u200b:")

// plain returns a text in which chat services find nobody to mention, and no link whose address they hide. A text may have
// what servers said, or what a tenant wrote and HAProxy quoted.
func plain(text string) string { return markup.Replace(printable.Lines(text)) }

// The bounds of what is sent.
const (
	queued  = 256             // notices that wait at most; newer ones are dropped
	timeout = 5 * time.Second // of one try
)

// Sender posts notices to a webhook.
type Sender struct {
	// URL returns the address. It is called for each try, since the address may have a token that is
	// renewed. The address is never logged.
	URL func() (string, error)
	Log *slog.Logger
	// Backoff spaces the tries of one notice. Zero means nine tries over some ten minutes.
	Backoff wait.Backoff

	queue chan Notice
}

// New returns a sender that has to be run.
func New(address func() (string, error), log *slog.Logger) *Sender {
	return &Sender{
		URL: address, Log: log, queue: make(chan Notice, queued),
		Backoff: wait.Backoff{Duration: 2 * time.Second, Factor: 2, Jitter: 0.1, Steps: 9, Cap: 4 * time.Minute},
	}
}

// Send queues a notice. It never waits: when the queue is full, the notice is dropped
// and the log says so.
func (s *Sender) Send(n Notice) {
	select {
	case s.queue <- n:
	default:
		s.Log.Warn("notice dropped, too many are waiting", "event", string(n.Event))
	}
}

// Run sends until ctx is done. Then it tries each notice that is still queued once, for as long as one
// try may take.
func (s *Sender) Run(ctx context.Context) {
	client := &http.Client{Timeout: timeout}
	for {
		select {
		case n := <-s.queue:
			s.deliver(ctx, client, n)
		case <-ctx.Done():
			s.flush(client)
			return
		}
	}
}

func (s *Sender) flush(client *http.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		select {
		case n := <-s.queue:
			if err := s.post(ctx, client, n); err != nil {
				s.Log.Warn("notice not sent", "event", string(n.Event), "err", err)
			}
		default:
			return
		}
	}
}

// deliver tries until the notice is taken, refused for good, or too old to matter.
func (s *Sender) deliver(ctx context.Context, client *http.Client, n Notice) {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, s.Backoff, func(ctx context.Context) (bool, error) {
		last = s.post(context.WithoutCancel(ctx), client, n) // to its end, so that nothing is told twice
		if errors.Is(last, errRefused) {
			return false, last
		}
		return last == nil, nil
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		// Told once more, as the process ends.
		s.Send(n)
	default:
		s.Log.Warn("notice not sent", "event", string(n.Event), "err", last)
	}
}

var errRefused = errors.New("the webhook refused it")

// post makes one try. Its error contains neither the address nor the answer, which may have a token.
func (s *Sender) post(ctx context.Context, client *http.Client, n Notice) error {
	address, err := s.URL()
	if err != nil {
		return err
	}
	n.Text = plain(n.Text)
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address of the webhook is no URL")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if err != nil {
		return fmt.Errorf("post notice: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection is used again
	switch code := response.StatusCode; {
	case code/100 == 2:
		return nil
	case code/100 == 5, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return fmt.Errorf("post notice: the webhook answered %d", code)
	default:
		return fmt.Errorf("%w: it answered %d", errRefused, code)
	}
}
