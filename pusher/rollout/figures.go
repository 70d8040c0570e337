package rollout

import "slices"

// Figures are what the gate compares, for people to see. It does not decide by them.
type Figures struct {
	// Target are the requests of the wave with the new snapshot, Before those of the same instances in
	// the minutes before, and Others those of the instances that the wave is compared with, meanwhile.
	Target Counters `json:"target"`
	Before Counters `json:"before"`
	Others Counters `json:"others"`
	// Needed is how many requests the target must have to be judged by them.
	Needed int64 `json:"needed"`
	// Connected is how many connections came to the wave, of which Expected were to be expected by its
	// past; 0 where nobody can tell. OthersConnected and OthersExpected are those of the others.
	Connected       int64   `json:"connected"`
	Expected        float64 `json:"expected"`
	OthersConnected int64   `json:"othersConnected"`
	OthersExpected  float64 `json:"othersExpected"`
	// Down is how many backends have no server up on an instance of the wave, and DownBefore how many
	// had none anywhere before it.
	Down       int `json:"down"`
	DownBefore int `json:"downBefore"`
}

// Share is the share of requests that were answered with 5xx, from 0 to 1.
func (c Counters) Share() float64 { return c.share() }

// Figures returns what the gate compares in the rollout that is going on, nil while there is nothing
// to compare.
func (p Policy) Figures(s State, instances []Seen) *Figures {
	t := &turn{Policy: p, State: s, o: Observation{Instances: instances}}
	if t.Rollout == nil || t.Rollout.Phase == Undoing || !t.judged() {
		return nil
	}
	out := &Figures{Needed: p.Gate.Requests, DownBefore: len(t.Rollout.Down)}
	var wave []Seen
	down := map[string]bool{}
	for _, seen := range instances {
		if !slices.Contains(t.Rollout.Members, seen.Name) || !t.has(seen.Name) {
			continue
		}
		wave = append(wave, seen)
		out.Before = out.Before.plus(t.Rollout.Counted[seen.Name].Past.Counters)
		for _, backend := range seen.Sample.Down {
			down[backend] = true
		}
	}
	if len(wave) == 0 {
		return nil
	}
	now, others := t.traffic(wave), t.traffic(t.others())
	out.Target, out.Others, out.Down = now.Counters, others.Counters, len(down)
	out.Connected, out.Expected, out.OthersConnected, out.OthersExpected = now.connected, now.expected, others.connected, others.expected
	return out
}

// WaveSize is how many instances have a snapshot after a wave: a number, or one more zone.
type WaveSize struct {
	Size string `json:"size"` // as the Fleet has it
	// Instances is how many of the fleet that is, and 0 for zones, of which one follows another.
	Instances int `json:"instances,omitempty"`
}

// Sizes returns the waves of a rollout through n instances, until all have it. There may be more waves
// than these: none takes the whole of a zone at once.
func (p Policy) Sizes(n int) []WaveSize {
	var out []WaveSize
	for wave := range len(p.Waves) + 1 {
		size := p.size(wave)
		if size.Zone {
			return append(out, WaveSize{Size: size.String()})
		}
		w := WaveSize{Size: size.String(), Instances: size.of(n)}
		if w.Instances >= n {
			return append(out, WaveSize{Size: size.String(), Instances: n})
		}
		out = append(out, w)
	}
	return out
}
