package validate

import "sync"

// mostVerdicts is how many verdicts a generation of a memo keeps.
const mostVerdicts = 20_000

// verdictMemo remembers verdicts about texts by their content, so that none can
// be out of date. It keeps those that were asked for lately, in two generations,
// and may be used by several goroutines.
type verdictMemo struct {
	mu         sync.Mutex
	young, old map[textKey][]int
}

func (m *verdictMemo) get(key textKey) ([]int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.young[key]; ok {
		return v, true
	}
	v, ok := m.old[key]
	if ok {
		m.add(key, v)
	}
	return v, ok
}

func (m *verdictMemo) put(key textKey, lost []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(key, lost)
}

func (m *verdictMemo) add(key textKey, lost []int) {
	if m.young == nil || len(m.young) >= mostVerdicts {
		m.young, m.old = map[textKey][]int{}, m.young
	}
	m.young[key] = lost
}
