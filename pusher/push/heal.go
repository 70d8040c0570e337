package push

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// refuseReload undoes what a failed reload leaves behind. A reload also fails
// where HAProxy could not be asked to reload, which is no fault of the snapshot.
func (p *attempt) refuseReload(ctx context.Context, before sight, cause error) error {
	if _, err := p.RuntimeInfo(ctx); errors.Is(err, dataplane.ErrRuntime) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	refused := fmt.Errorf("%w: %w", ErrRefused, cause)
	if hint, ok := instanceFault(cause.Error(), string(p.want.Config), string(p.lastGood(before))); ok {
		refused = &instanceError{cause, hint}
	}
	if err := p.heal(ctx, before); err != nil {
		return fmt.Errorf("%w; restore the configuration: %w", refused, err)
	}
	return refused
}

// refused returns the error of a configuration that HAProxy refused. Where it refuses
// what ran before as well, the instance is at fault, whatever it says.
func (p *attempt) refused(ctx context.Context, before sight, cause error) error {
	if hint, ok := instanceFault(cause.Error(), string(p.want.Config), string(p.lastGood(before))); ok {
		return &instanceError{cause, hint}
	}
	if p.good != nil && bind.SameNode(p.good.Node, before.info.Node) && !bind.SameNode(p.good.Node, p.want.Node) {
		_, err := p.API.PostRaw(ctx, p.good.Config, dataplane.PostOptions{Version: before.memory, OnlyValidate: true})
		if errors.Is(err, dataplane.ErrValidation) {
			return &instanceError{cause, "HAProxy refuses there what it runs, too: " + Gist(err)}
		}
	}
	return fmt.Errorf("%w: %w", ErrRefused, cause)
}

// undamage returns to the last good text when the API lost a part of what was
// posted, which the worker runs by now.
func (p *attempt) undamage(ctx context.Context, before sight, want, got int) error {
	refused := fmt.Errorf("%w: the Dataplane API kept %d of %d sections", ErrRefused, got, want)
	version, err := p.version(ctx)
	if err == nil {
		_, err = p.API.PostRaw(ctx, p.lastGood(before), dataplane.PostOptions{Version: version, ForceReload: true})
	}
	if err != nil {
		return fmt.Errorf("%w; restore the configuration: %w", refused, err)
	}
	return refused
}

// heal makes the file and the API's memory say what the worker runs. After a
// failed reload the API has put an older file back, and keeps the failed text in
// memory: the next change by anybody would commit it again.
func (p *attempt) heal(ctx context.Context, before sight) error {
	good := p.lastGood(before)
	want := readText(good)
	for range maxTries {
		s, err := p.look(ctx)
		if err != nil {
			return err
		}
		if s.info.Node != before.info.Node {
			return fmt.Errorf("%w: %s", ErrElsewhere, s.info.Node)
		}
		if s.disk.sameAs(want) && s.disk.version == s.memory {
			return nil
		}
		if err := p.persist(ctx, good, s.memory); err != nil && !isUncertain(err) {
			return err
		}
	}
	return errors.New("somebody else keeps changing it")
}

// lastGood returns the text of what ran before: the bound snapshot, with today's
// servers, else what was on disk.
func (p *attempt) lastGood(before sight) []byte {
	if p.good != nil && bind.SameNode(p.good.Node, before.info.Node) {
		return p.good.Config
	}
	return withoutHeader(before.raw.Config)
}

// persist writes the text to disk and into the API's memory. The worker notices
// nothing.
func (i Instance) persist(ctx context.Context, config []byte, version int64) error {
	_, err := i.API.PostRaw(ctx, config, dataplane.PostOptions{Version: version, SkipReload: true})
	if errors.Is(err, dataplane.ErrConflict) || errors.Is(err, dataplane.ErrValidation) {
		i.tidy(ctx)
	}
	return err
}

func (i Instance) version(ctx context.Context) (int64, error) {
	raw, err := i.API.Raw(ctx)
	return raw.Version, err
}

// tidy removes what refused posts left behind: each a whole copy of its text on
// the instance's disk, which nobody else removes.
func (i Instance) tidy(ctx context.Context) {
	all, err := i.API.Transactions(ctx)
	if err != nil {
		return // at the next time
	}
	for _, t := range all {
		if slices.Contains([]string{"failed", "outdated"}, t.Status) {
			_ = i.API.DeleteTransaction(ctx, t.ID)
		}
	}
}
