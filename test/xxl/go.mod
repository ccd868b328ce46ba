module github.com/belfry-cron/belfry/test/xxl

go 1.26.0

require (
	github.com/belfry-cron/belfry v0.0.0
	github.com/xxl-job/xxl-job-executor-go v1.2.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/go-basic/ipv4 v1.0.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/belfry-cron/belfry => ../..
