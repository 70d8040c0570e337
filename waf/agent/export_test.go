package agent

// Before sets a function that is called with the path of each request before its inspection.
func (a *Agent) Before(do func(path string)) {
	inspect := a.inspect
	a.inspect = func(p *prepared, m *message) (finding, error) {
		do(m.path.Text())
		return inspect(p, m)
	}
}
