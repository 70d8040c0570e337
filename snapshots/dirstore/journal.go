package dirstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The journal of a store: a line of JSON for each entry. What is about to be done to the channel is
// announced in a file of its own first, and gets into the journal after that. A writer that is killed in
// between leaves the announcement to the next one, which knows by the channel whether it was done.
const (
	journalFile  = "journal.jsonl"
	announceFile = "journal-next.json"
)

// announcement is an act that was not in the journal yet when it was written.
type announcement struct {
	Channel string        `json:"channel"` // the SHA-256 of the channel in which it is done
	Entry   channel.Entry `json:"entry"`
}

func channelSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Journal returns what is known of what was done to the channel and of the turns of rollouts, the oldest
// entry first.
func (s *Store) Journal(ctx context.Context) ([]channel.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	journal, err := s.journal()
	if err != nil {
		return nil, err
	}
	return channel.ParseEntries(journal), nil
}

// Record adds turns of rollouts to the journal.
func (s *Store) Record(ctx context.Context, now time.Time, entries ...channel.Entry) error {
	if _, err := s.list(); err != nil { // no store is made by its journal
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.record(ctx, now, entries...)
}

// journal reads the journal, with the act that was announced, if that was done.
func (s *Store) journal() ([]byte, error) {
	journal, err := readSome(s.in(journalFile), 2*channel.MaxJournalBytes)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	text, err := readSome(s.in(announceFile), channel.MaxJournalBytes)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	var next announcement
	if known := json.Unmarshal(text, &next) == nil; !known {
		return journal, nil
	}
	current, err := readSome(s.in(channelFile), channel.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	if channelSum(current) != next.Channel {
		return journal, nil
	}
	return channel.AppendEntries(journal, next.Entry)
}

// readSome reads a file up to a size. One that is not there is empty.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// announce writes down an act that is about to be done. The caller holds the lock.
func (s *Store) announce(ctx context.Context, data []byte, e channel.Entry, now time.Time) error {
	if err := s.record(ctx, now); err != nil { // what a writer announced that was killed
		return err
	}
	text, err := json.Marshal(announcement{channelSum(data), e})
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return s.replace(ctx, announceFile, text, now)
}

// record writes the journal with the act that was announced, if that was done, and with more entries. The
// caller holds the lock.
func (s *Store) record(ctx context.Context, now time.Time, entries ...channel.Entry) error {
	journal, err := s.journal()
	if err != nil {
		return err
	}
	if journal, err = channel.AppendEntries(journal, entries...); err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	if len(journal) == 0 {
		return nil
	}
	if err := s.replace(ctx, journalFile, journal, now); err != nil {
		return err
	}
	if err := os.Remove(s.in(announceFile)); err != nil && !missing(err) {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return nil
}

// replace gives a file another content.
func (s *Store) replace(ctx context.Context, name string, data []byte, now time.Time) error {
	file := s.in(temporary + name)
	if err := writeFile(file, data, now); err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	if err := s.publish(ctx, file, s.in(name)); err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return nil
}
