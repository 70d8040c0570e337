package configmapstore

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// UpdateChannel lets edit change the channel, and writes what it made of it. It
// calls edit again if another writer was faster. It returns the error of edit as it
// is, and then writes nothing.
func (s *Store) UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error {
	for try := 1; ; try++ {
		ids, err := s.IDs(ctx) // which the channel may name in short
		if err != nil {
			return err
		}
		channel, o, err := s.channel(ctx, ids)
		if err != nil {
			return err
		}
		data, changed, err := sequence.Edit(channel, edit)
		if err != nil || !changed && !s.lacksSignature(o) {
			return err
		}
		err = s.writeChannel(ctx, o, data, now)
		switch {
		case err == nil:
			return nil
		case !overtaken(err) || try == tries:
			return fmt.Errorf("write channel (%s): %w", subject, s.unmade(ctx, ChannelName(s.name), err))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// writeChannel replaces the channel, or makes it if there is no ConfigMap of it yet.
// Whatever else people put there stays.
func (s *Store) writeChannel(ctx context.Context, o *corev1.ConfigMap, data []byte, now time.Time) error {
	channel, err := channel.Parse(data)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(channel)
	if err != nil {
		return err
	}
	if o == nil {
		o = newChannel(s.name, fields)
		if err := s.signChannel(o, now); err != nil {
			return err
		}
		_, err := s.create(ctx, o)
		return err
	}
	for _, key := range channelKeys {
		delete(o.Data, key)
	}
	maps.Copy(o.Data, fields)
	if err := s.signChannel(o, now); err != nil {
		return err
	}
	return s.update(ctx, o)
}

// signChannel signs what a channel says, as the one that comes after the one before.
func (s *Store) signChannel(o *corev1.ConfigMap, now time.Time) error {
	before, _ := parseStatement(o.Annotations[SignedAnnotation])
	what, err := stateChannel(s.String(), before.serial()+1, o.Data, now)
	if err != nil {
		return err
	}
	return s.signing.sign(o, what)
}

// lacksSignature reports whether a channel is to be signed as it is: there is a key, nobody
// says whose signatures are accepted, and it is not signed with that key. Where signatures
// are asked for, a channel without a good one cannot be read in the first place.
func (s *Store) lacksSignature(o *corev1.ConfigMap) bool {
	if o == nil || !s.signing.key.Enabled() || s.signing.allowed.Enabled() {
		return false
	}
	what, err := parseStatement(o.Annotations[SignedAnnotation])
	if err != nil || what.about(signedChannel, s.String(), "") != nil || !what.covers(o.Data) {
		return true
	}
	armored, err := s.signing.key.SignText([]byte(what.String()), what.at)
	return err != nil || armored != o.Annotations[SignatureAnnotation]
}

// channel returns the channel and its ConfigMap; none is the channel in which
// nobody has said anything. An unreadable one is an error, and never that channel, and so
// is one that does not come after the one that was read before.
// The snapshots of the store are those that it may name in short.
func (s *Store) channel(ctx context.Context, ids []snapshots.ID) (channel.Channel, *corev1.ConfigMap, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	name := ChannelName(s.name)
	o, err := s.get(ctx, name)
	if apierrors.IsNotFound(err) {
		o, err = nil, s.placed(ctx)
	}
	if err != nil {
		return channel.Channel{}, nil, fmt.Errorf("read channel: %w", because(ctx, err))
	}
	var current channel.Channel
	serial, err := s.vouchChannel(o)
	if o != nil && err == nil {
		current, err = channelOf(o.Data, ids)
	}
	if err == nil {
		err = s.believe(o, serial, current)
	}
	if err != nil {
		return channel.Channel{}, nil, fmt.Errorf("read ConfigMap %s/%s: %w", s.namespace, name, err)
	}
	return current, o, nil
}
