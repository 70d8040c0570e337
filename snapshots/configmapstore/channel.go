package configmapstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/yamltext"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// UpdateChannel lets edit change the channel, and writes the result. It calls edit again if another
// writer was faster. If edit returns an error, UpdateChannel returns it and writes nothing.
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
		data, act, changed, err := sequence.EditBy(channel, edit)
		if err != nil || !changed && !s.lacksSignature(o) {
			return err
		}
		entry := act.Entry(subject, now)
		written, entries, err := s.writeChannel(ctx, o, data, entry, now)
		switch {
		case err == nil && changed:
			s.say(ctx, written, entries...)
			return nil
		case err == nil: // it is signed now, and says what it said
			return nil
		case !overtaken(err) || try == tries:
			return fmt.Errorf("write channel (%s): %w", subject, s.unmade(ctx, ChannelName(s.name), err))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// writeChannel replaces the channel, or creates its ConfigMap, with the entry in its journal, and returns
// what it wrote and what is new in the journal. Other keys that people put there stay.
func (s *Store) writeChannel(ctx context.Context, o *corev1.ConfigMap, data []byte, entry channel.Entry, now time.Time) (*corev1.ConfigMap, []channel.Entry, error) {
	content, err := channel.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	fields, err := fieldsOf(content)
	if err != nil {
		return nil, nil, err
	}
	write := s.update
	if o == nil {
		o, write = newChannel(s.name, fields), s.create
	}
	change := func() {
		for _, key := range channelKeys {
			delete(o.Data, key)
		}
		maps.Copy(o.Data, fields)
	}
	entries, err := addEntries(o, now, change, entry)
	if err != nil {
		return nil, nil, err
	}
	if err := s.signChannel(o, now); err != nil {
		return nil, nil, err
	}
	written, err := write(ctx, o)
	return written, entries, err
}

// say writes Events on the ConfigMap of the channel about acts that were written into it. The acts are done and
// in the journal, so it never fails: without permission to write Events, acts have none.
func (s *Store) say(ctx context.Context, written *corev1.ConfigMap, entries ...channel.Entry) {
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	for _, e := range entries {
		if _, err := s.said.Events(s.namespace).Create(ctx, actEvent(s.namespace, written, e), metav1.CreateOptions{}); err != nil {
			s.log.Warn("cannot write an Event about a change of the channel; the journal has it", "act", e.Verb, "snapshot", e.Snapshot, "err", because(ctx, err))
		}
	}
}

// signChannel signs the content of a channel, with the number that follows the one before.
func (s *Store) signChannel(o *corev1.ConfigMap, now time.Time) error {
	before, _ := parseStatement(o.Annotations[signedAnnotation])
	what, err := stateChannel(s.String(), before.serial()+1, o.Data, now)
	if err != nil {
		return err
	}
	return s.signing.sign(o, what)
}

// lacksSignature reports whether an unchanged channel has to be signed: there is a key, no list of
// signers, and the channel is not signed with that key. With a list of signers, a channel without a
// good signature cannot be read in the first place.
func (s *Store) lacksSignature(o *corev1.ConfigMap) bool {
	if o == nil || !s.signing.key.Enabled() || s.signing.allowed.Enabled() {
		return false
	}
	what, err := parseStatement(o.Annotations[signedAnnotation])
	if err != nil || what.about(signedChannel, s.String(), "") != nil || !what.covers(o.Data) {
		return true
	}
	armored, err := s.signing.key.SignText([]byte(what.String()), what.at)
	return err != nil || armored != o.Annotations[signatureAnnotation]
}

// channel returns the channel and its ConfigMap. Without a ConfigMap it is the empty channel. If the channel
// cannot be read, or is older than one that was read before, it returns an error, and never the empty channel.
// A channel may name the snapshots of the store by their revision alone.
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

// Journal returns the known acts on the channel and entries about rollouts, the oldest first.
func (s *Store) Journal(ctx context.Context) ([]channel.Entry, error) {
	o, err := s.get(ctx, ChannelName(s.name))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, because(ctx, err))
	}
	return channel.ParseEntries(o.BinaryData[journalKey]), nil
}

// Record adds entries about rollouts to the journal. It does not create a channel. The pusher writes the Events of
// these. If Record finds a change of the channel by hand, it writes the Event of that.
func (s *Store) Record(ctx context.Context, now time.Time, entries ...channel.Entry) error {
	for try := 1; ; try++ {
		o, err := s.get(ctx, ChannelName(s.name))
		if apierrors.IsNotFound(err) {
			return process.WithHint(fmt.Errorf("write the journal of %s: %w", s, err), "it is in the ConfigMap of the channel, which is not there")
		}
		var added []channel.Entry
		if err == nil {
			added, err = addEntries(o, now, nil, entries...)
		}
		if err == nil {
			o, err = s.update(ctx, o)
		}
		switch {
		case err == nil:
			s.say(ctx, o, added[:len(added)-len(entries)]...)
			return nil
		case !overtaken(err) || try == tries:
			return fmt.Errorf("write the journal of %s: %w", s, because(ctx, err))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// The keys of a channel's ConfigMap. The first line of a value is what a person would write. Lines of
// the form NAME: VALUE after it say who wrote it, when and why, and may be left out. So a key is
// changed as a whole: the author of an old pin is never taken for the author of a new one.
const (
	pinKey      = "pin"              // r000012-9f3ac01b2d, or r12
	overrideKey = "override"         // likewise; "until: TIME" says when it ends
	pauseKey    = "pause"            // true
	approvalKey = "requireApproval"  // true or false
	approvedKey = "approved"         // snapshots
	rejectedKey = "rejected"         // YAML: a list with digest, snapshot, reason, at, fleet, failed, good
	sharedKey   = "shareRejections"  // true or false
	promoteKey  = "promote"          // a snapshot; "full: true" for all that remain
	abortKey    = "abort"            // a snapshot
	acceptedKey = "acceptedRewind"   // lost snapshots and versions of the channel that were accepted
	confirmKey  = "confirmEndpoints" // the name of a loss
	noteKey     = "note"             // for people; programs ignore it
)

var channelKeys = []string{pinKey, overrideKey, pauseKey, approvalKey, approvedKey, rejectedKey, sharedKey, promoteKey, abortKey, acceptedKey, confirmKey}

// fieldsOf returns the keys for the content of a channel. requireApproval is always there, so that a
// ConfigMap without any key was never written by a store.
func fieldsOf(c channel.Channel) (map[string]string, error) {
	out := map[string]string{approvalKey: strconv.FormatBool(c.Spec.RequireApproval)}
	if p := c.Spec.Pin; p != nil {
		out[pinKey] = lines(p.Snapshot.String(), "by", p.By, "at", moment(p.At), "reason", p.Reason)
	}
	if o := c.Spec.Override; o != nil {
		out[overrideKey] = lines(o.Snapshot.String(), "until", moment(o.Expires), "by", o.By, "reason", o.Reason)
	}
	if p := c.Spec.Pause; p != nil {
		out[pauseKey] = lines("true", "by", p.By, "at", moment(p.At), "reason", p.Reason)
	}
	for key, o := range map[string]*channel.Order{promoteKey: c.Spec.Promote, abortKey: c.Spec.Abort} {
		if o != nil {
			full := ""
			if o.Full {
				full = "true"
			}
			out[key] = lines(o.Snapshot.String(), "full", full, "by", o.By, "at", moment(o.At), "reason", o.Reason)
		}
	}
	if r := c.Spec.AcceptedRewind; r != nil {
		words := slices.Clone(r.Channels)
		for _, id := range r.Snapshots {
			words = append(words, id.String())
		}
		out[acceptedKey] = lines(strings.Join(words, " "), "by", r.By, "at", moment(r.At), "reason", r.Reason)
	}
	if c.Spec.ShareRejections {
		out[sharedKey] = "true"
	}
	if o := c.Spec.ConfirmEndpoints; o != nil {
		out[confirmKey] = lines(o.Loss, "by", o.By, "at", moment(o.At), "reason", o.Reason)
	}
	var approved strings.Builder
	for _, id := range c.Spec.Approved {
		approved.WriteString(id.String() + "\n")
	}
	if approved.Len() > 0 {
		out[approvedKey] = approved.String()
	}
	if len(c.Spec.Rejected) > 0 {
		text, err := yamltext.Marshal(c.Spec.Rejected)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", rejectedKey, err)
		}
		out[rejectedKey] = string(text)
	}
	return out, nil
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// lines writes a first line, and one line for each detail that is not empty.
func lines(first string, details ...string) string {
	text := first
	for pair := range slices.Chunk(details, 2) {
		value := pair[1]
		if value == "" {
			continue
		}
		if strings.ContainsAny(value, "\r\n") || strings.TrimSpace(value) != value || strings.HasPrefix(value, `"`) {
			value = strconv.Quote(value)
		}
		text += "\n" + pair[0] + ": " + value
	}
	return text
}

// channelOf reads the keys of a ConfigMap. A person may name one of the store's snapshots by its revision. It
// refuses unknown keys, since one may be what a person wanted most. The error wraps [channel.ErrInvalid].
func channelOf(data map[string]string, ids []snapshots.ID) (channel.Channel, error) {
	r := fieldReader{data: data, ids: ids, known: map[string]bool{noteKey: true}}
	var c channel.Channel
	if !slices.ContainsFunc(channelKeys, func(key string) bool { _, ok := data[key]; return ok }) {
		r.fail(approvalKey, "neither it nor any other key of a channel is there")
	}
	if first, details := r.field(pinKey, "by", "at", "reason"); first != "" {
		c.Spec.Pin = &channel.Pin{Snapshot: r.snapshot(pinKey, first), By: details["by"], At: r.time(pinKey, details["at"]), Reason: details["reason"]}
	}
	if first, details := r.field(overrideKey, "until", "by", "reason"); first != "" {
		c.Spec.Override = &channel.Override{Snapshot: r.snapshot(overrideKey, first), Expires: r.time(overrideKey, details["until"]), By: details["by"], Reason: details["reason"]}
		if details["until"] == "" {
			r.fail(overrideKey, "the line until: TIME is missing")
		}
	}
	if first, details := r.field(pauseKey, "by", "at", "reason"); r.flag(pauseKey, first) {
		c.Spec.Pause = &channel.Pause{By: details["by"], At: r.time(pauseKey, details["at"]), Reason: details["reason"]}
	}
	c.Spec.Promote, c.Spec.Abort = r.order(promoteKey, "full", "by", "at", "reason"), r.order(abortKey, "by", "at", "reason")
	c.Spec.AcceptedRewind = r.acceptedRewind()
	if first, details := r.field(confirmKey, "by", "at", "reason"); first != "" {
		c.Spec.ConfirmEndpoints = &channel.Confirmation{Loss: first, By: details["by"], At: r.time(confirmKey, details["at"]), Reason: details["reason"]}
	}
	first, _ := r.field(approvalKey)
	c.Spec.RequireApproval = r.flag(approvalKey, first)
	shared, _ := r.field(sharedKey)
	c.Spec.ShareRejections = r.flag(sharedKey, shared)
	c = r.approvals(c)
	r.known[rejectedKey] = true
	if err := snapshots.DecodeYAML([]byte(data[rejectedKey]), channel.MaxSize, &c.Spec.Rejected); err != nil {
		r.fail(rejectedKey, err.Error())
	}
	return c, r.end(c)
}

// fieldReader reads the keys of a channel, and keeps the first fault.
type fieldReader struct {
	data  map[string]string
	ids   []snapshots.ID
	known map[string]bool
	err   error
}

func (r *fieldReader) fail(key, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: data.%s: %s", channel.ErrInvalid, key, why)
	}
}

// field returns the first line of a value, and the details in the lines after it.
func (r *fieldReader) field(key string, names ...string) (first string, details map[string]string) {
	r.known[key] = true
	first, rest, _ := strings.Cut(strings.TrimSpace(r.data[key]), "\n")
	details = map[string]string{}
	for line := range strings.Lines(rest) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || !slices.Contains(names, name) {
			r.fail(key, fmt.Sprintf("%q is not a line of %s", strings.TrimSpace(line), strings.Join(names, ", ")))
			continue
		}
		value = strings.TrimSpace(value)
		if plain, err := strconv.Unquote(value); err == nil && strings.HasPrefix(value, `"`) {
			value = plain
		}
		details[name] = value
	}
	return strings.TrimSpace(first), details
}

// snapshot returns the snapshot that a person names. A snapshot that is named in full need not be in
// the store.
func (r *fieldReader) snapshot(key, name string) snapshots.ID {
	if id, err := snapshots.ParseID(name); err == nil {
		return id
	}
	id, ok := snapshots.FindID(r.ids, name)
	if !ok {
		r.fail(key, fmt.Sprintf("the store holds no snapshot %q", name))
	}
	return id
}

func (r *fieldReader) time(key, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.fail(key, fmt.Sprintf("%q is not a time such as 2026-01-02T15:04:05Z", text))
	}
	return t.UTC()
}

func (r *fieldReader) flag(key, text string) bool {
	switch text {
	case "true":
		return true
	case "", "false":
	default:
		r.fail(key, fmt.Sprintf("%q is neither true nor false", text))
	}
	return false
}

func (r *fieldReader) order(key string, names ...string) *channel.Order {
	first, details := r.field(key, names...)
	if first == "" {
		return nil
	}
	return &channel.Order{
		Snapshot: r.snapshot(key, first), Full: r.flag(key, details["full"]), By: details["by"], At: r.time(key, details["at"]), Reason: details["reason"],
	}
}

func (r *fieldReader) acceptedRewind() *channel.AcceptedRewind {
	first, details := r.field(acceptedKey, "by", "at", "reason")
	if first == "" {
		return nil
	}
	out := channel.AcceptedRewind{By: details["by"], At: r.time(acceptedKey, details["at"]), Reason: details["reason"]}
	for _, word := range strings.Fields(first) {
		if id, err := snapshots.ParseID(word); err == nil {
			out.Snapshots = append(out.Snapshots, id)
		} else {
			out.Channels = append(out.Channels, word)
		}
	}
	return &out
}

func (r *fieldReader) approvals(c channel.Channel) channel.Channel {
	r.known[approvedKey] = true
	for name := range strings.FieldsFuncSeq(r.data[approvedKey], func(c rune) bool { return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n' }) {
		if id := r.snapshot(approvedKey, name); !id.IsZero() {
			c = c.Approve(id)
		}
	}
	return c
}

// end returns the first fault, or that of the channel as a whole.
func (r *fieldReader) end(c channel.Channel) error {
	for _, key := range slices.Sorted(maps.Keys(r.data)) {
		if !r.known[key] {
			r.fail(key, "no channel has it")
		}
	}
	if r.err != nil {
		return r.err
	}
	_, err := c.Marshal()
	return err
}

// ChannelManager returns the name of the tool that keeps the channel as it is in another place, and so reverts
// changes here. It returns "" without such a tool, or without a channel.
func (s *Store) ChannelManager(ctx context.Context) (string, error) {
	o, err := s.get(ctx, ChannelName(s.name))
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read channel: %w", err)
	}
	return managerOf(o), nil
}

// managerOf recognizes Argo CD and Flux, which apply an object again and again, by their marks. Our
// annotations keep them from deleting objects that they do not know; they still revert changes of
// objects that they know.
func managerOf(o *corev1.ConfigMap) string {
	const (
		argo      = "argocd.argoproj.io/tracking-id"
		argoLabel = "argocd.argoproj.io/instance"
		flux      = "kustomize.toolkit.fluxcd.io/"
		helm      = "helm.toolkit.fluxcd.io/"
	)
	once := o.Annotations[flux+"ssa"] == "IfNotPresent" || o.Annotations[flux+"ssa"] == "Ignore"
	switch {
	case o.Annotations[argo] != "":
		return "Argo CD (" + o.Annotations[argo] + ")"
	case o.Labels[argoLabel] != "":
		return "Argo CD (application " + o.Labels[argoLabel] + ")"
	case o.Labels[flux+"name"] != "" && !once && o.Annotations[flux+"reconcile"] != "disabled":
		return "Flux (Kustomization " + o.Labels[flux+"namespace"] + "/" + o.Labels[flux+"name"] + ")"
	case o.Labels[helm+"name"] != "":
		return "Flux (HelmRelease " + o.Labels[helm+"namespace"] + "/" + o.Labels[helm+"name"] + ")"
	}
	return ""
}
