package dataplane

import (
	"context"
	"net/url"
	"time"
)

// The states of a reload.
const (
	ReloadInProgress = "in_progress"
	ReloadSucceeded  = "succeeded"
	ReloadFailed     = "failed"
)

// Reload is the state of one reload.
type Reload struct {
	ID     string
	Status string
	// Response is what HAProxy said when it started, the reason where it did not.
	// Empty where it could not be asked.
	Response string
	// At is when it ended, to the second; zero while it has not.
	At time.Time
}

type reloadBody struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Response  string `json:"response"`
	Timestamp int64  `json:"reload_timestamp"`
}

func (b reloadBody) reload() Reload {
	r := Reload{ID: b.ID, Status: b.Status, Response: shownStartup(b.Response)}
	if b.Timestamp != 0 {
		r.At = time.Unix(b.Timestamp, 0).UTC()
	}
	return r
}

// Reload returns the state of a reload, ErrNotFound when the API knows no such id.
// The API counts from 0 each time it starts, so an id is only good for a reload
// asked for since then; any id before that of the last success is a success.
func (c *Client) Reload(ctx context.Context, id string) (Reload, error) {
	var body reloadBody
	_, err := c.getJSON(ctx, "get reload", "/services/haproxy/reloads/"+url.PathEscape(id), &body)
	if err != nil {
		return Reload{}, err
	}
	body.ID = id // left out by the API while in progress
	return body.reload(), nil
}

// Reloads returns the failed reloads that are remembered, the last success and
// what is pending, in no order. It is empty after the API has started.
func (c *Client) Reloads(ctx context.Context) ([]Reload, error) {
	var bodies []reloadBody
	if _, err := c.getJSON(ctx, "list reloads", "/services/haproxy/reloads", &bodies); err != nil {
		return nil, err
	}
	reloads := make([]Reload, 0, len(bodies))
	for _, b := range bodies {
		reloads = append(reloads, b.reload())
	}
	return reloads, nil
}
