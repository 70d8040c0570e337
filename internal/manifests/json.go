package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// parseJSON reads a stream of JSON values as trees of the same nodes that YAML
// gives. JSON is not read as YAML, which knows other escapes. At a syntax error
// the values before it are returned with a problem, whose line is relative.
func parseJSON(data []byte) ([]*yaml.Node, *Problem) {
	p := jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	var values []*yaml.Node
	for {
		value, err := p.value()
		switch {
		case errors.Is(err, io.EOF) && p.depth == 0:
			return values, nil
		case err != nil:
			return values, p.problem(err)
		}
		values = append(values, value)
	}
}

// jsonParser builds nodes from the tokens of a decoder. It counts lines as it
// goes: line and column are how many lines, and characters of the line, are before.
type jsonParser struct {
	data         []byte
	dec          *json.Decoder
	depth        int
	seen         int
	line, column int
}

// value reads one value, or io.EOF at the end of the stream.
func (p *jsonParser) value() (*yaml.Node, error) {
	node := p.next()
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		return node, p.collection(node, t)
	case string:
		node.Tag, node.Value, node.Style = yaml.NodeTagString, t, yaml.DoubleQuotedStyle
	case json.Number:
		node.Tag, node.Value = yaml.NodeTagFloat, t.String()
	case bool:
		node.Tag, node.Value = yaml.NodeTagBool, map[bool]string{true: "true", false: "false"}[t]
	case nil:
		node.Tag, node.Value = yaml.NodeTagNull, "null"
	}
	return node, nil
}

// collection reads the members of an object or array up to its end.
func (p *jsonParser) collection(node *yaml.Node, open json.Delim) error {
	node.Kind, node.Tag = yaml.SequenceNode, yaml.NodeTagSeq
	if open == '{' {
		node.Kind, node.Tag = yaml.MappingNode, yaml.NodeTagMap
	}
	if p.depth++; p.depth > maxDepth {
		return errTooDeep
	}
	for p.dec.More() {
		member, err := p.value() // a key and its value are members alike
		if err != nil {
			return err
		}
		node.Content = append(node.Content, member)
	}
	_, err := p.dec.Token()
	p.depth--
	return err
}

// next returns a scalar node at the place where the next token starts.
func (p *jsonParser) next() *yaml.Node {
	start := int(p.dec.InputOffset())
	for start < len(p.data) && bytes.IndexByte([]byte(" \t\r\n,:"), p.data[start]) >= 0 {
		start++
	}
	line, column := p.locate(start)
	return &yaml.Node{Kind: yaml.ScalarNode, Line: line, Column: column}
}

// locate returns the line and column of an offset, which never decreases. No byte
// is looked at twice, for all may be on one line.
func (p *jsonParser) locate(offset int) (line, column int) {
	for ; p.seen < min(offset, len(p.data)); p.seen++ {
		if p.data[p.seen] == '\n' {
			p.line, p.column = p.line+1, 0
		} else if utf8.RuneStart(p.data[p.seen]) {
			p.column++
		}
	}
	return p.line + 1, p.column + 1
}

// problem turns an error of the decoder into one with a place.
func (p *jsonParser) problem(err error) *Problem {
	offset := int(p.dec.InputOffset())
	message := "not JSON: " + err.Error()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		offset = max(int(syntax.Offset)-1, offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		offset, message = len(p.data), "not JSON: the file ends in the middle of a value"
	}
	line, column := p.locate(offset)
	return &Problem{
		Position: Position{Line: line, Column: column}, Message: message,
		Hint: "nothing after this place in the file was read",
	}
}
