package dataplane

import (
	"context"
	"net/http"
	"net/url"
)

const transactionsPath = "/services/haproxy/transactions"

// Transaction is a change that was begun. A post that was refused leaves one
// behind, failed or outdated, with a whole copy of its text on the instance's disk.
type Transaction struct {
	ID string `json:"id"`
	// Version is that of the configuration it began with.
	Version int64 `json:"_version"`
	// Status is in_progress, failed, outdated or success.
	Status string `json:"status"`
}

// Transactions lists what is open or was left behind.
func (c *Client) Transactions(ctx context.Context) ([]Transaction, error) {
	var all []Transaction
	_, err := c.getJSON(ctx, "list transactions", transactionsPath, &all)
	return all, err
}

// DeleteTransaction drops a transaction and its files.
func (c *Client) DeleteTransaction(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{
		op: "delete transaction", method: http.MethodDelete,
		path: transactionsPath + "/" + url.PathEscape(id), ok: []int{http.StatusNoContent},
	})
	return err
}
