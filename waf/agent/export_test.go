package agent

// Before has a function called with the path of each request that is inspected.
func (a *Agent) Before(do func(path string)) {
	inspect := a.inspect
	a.inspect = func(p *prepared, m *message) (finding, error) {
		do(m.path.Text())
		return inspect(p, m)
	}
}
