package sequence

import (
	"bytes"
	"fmt"

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Edit returns what edit makes of a channel, encoded, and whether that differs
// from what it was. The error of edit is returned as it is.
func Edit(channel channel.Channel, edit func(*channel.Channel) error) ([]byte, bool, error) {
	before, err := channel.Marshal()
	if err != nil {
		return nil, false, fmt.Errorf("encode channel: %w", err)
	}
	if err := edit(&channel); err != nil {
		return nil, false, err
	}
	after, err := channel.Marshal()
	if err != nil {
		return nil, false, fmt.Errorf("encode channel: %w", err)
	}
	return after, !bytes.Equal(before, after), nil
}
