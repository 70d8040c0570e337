package rollout

// heed does what a person said of the rollout under way, once: a promotion ends the soak
// of its wave, an abort its chances. What was said before it began was said of another.
func (t *turn) heed() {
	r := t.Rollout
	if r == nil || r.Phase == Undoing || !t.o.Channel {
		return
	}
	if a := t.o.Abort; a.Mark != r.Aborted {
		if r.Aborted = a.Mark; a.Snapshot == r.Target {
			if now := naming(t.o.Wishes, r.Target.Short); len(now) > 0 {
				r.Intent = now[0].Intent // said of what is wanted now, not of what it began with
			}
			t.fail("aborted" + a.Says)
			return
		}
	}
	if p := t.o.Promotion; p.Mark != r.Promoted {
		if r.Promoted = p.Mark; p.Snapshot == r.Target {
			r.Vouched, r.Full = r.Wave+1, r.Full || p.Full
		}
	}
}

// vouched reports whether a person lets the wave go on without a soak, and without
// enough to judge it by. What is known to be wrong with it stops it all the same.
func (t *turn) vouched() bool { return t.Rollout.Full || t.Rollout.Vouched > t.Rollout.Wave }

// darkForWave is dark for a wave of the rollout: one that a person has promoted it to
// begins in a blackout too.
func (t *turn) darkForWave(wave int) bool {
	r := t.Rollout
	ordered := r.Full || (r.Vouched > 0 && r.Vouched >= wave)
	return !ordered && t.dark()
}

// nextSize returns the size of the next wave.
func (t *turn) nextSize() Size {
	if t.Rollout.Full {
		return Size{Percent: 100}
	}
	return t.size(t.Rollout.Wave)
}
